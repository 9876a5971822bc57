"""What clients, models and servers say cannot look like an entry of the log, nor command the terminal that shows it."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.redaction import Redactor
from gateway.process.logs import RedactingFormatter

FORGED = "x\n2026-01-01 00:00:00,000 INFO    gateway.requests: forged\r\n\x1b[2J\x1b]0;owned\x07\u2028\u202ey"
FORMATTER = RedactingFormatter(Redactor())
COMMANDS = "".join(map(chr, [*range(10), *range(11, 32), *range(127, 160), *range(0x2028, 0x202F)]))


def record(message: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    trace = sys.exc_info() if error else None
    return logging.LogRecord("x", logging.WARNING, "x", 1, message, arguments, trace)


@given(st.text(st.sampled_from(COMMANDS + "\nab é"), max_size=40))
def test_an_entry_has_one_line_that_is_not_indented_and_no_control_character(text: str) -> None:
    for made in (
        record("it failed: %s", text),
        record(text),
    ):
        first, *further = FORMATTER.format(made).split("\n")
        assert "WARNING x: " in first
        assert all(line.startswith("    ") for line in further)
        left = {each for line in (first, *further) for each in line if not each.isprintable()}
        assert left <= {"\t"}


def test_a_traceback_is_indented_too_and_can_be_read() -> None:
    try:
        raise ValueError(FORGED)  # noqa: TRY301  # its traceback is what is tested
    except ValueError:
        entry = FORMATTER.format(record("it failed", error=True))
    first, *further = entry.split("\n")
    assert first.endswith("it failed")
    assert further[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in further)
    assert "\x1b" not in entry


def test_a_readable_text_is_left_as_it_is() -> None:
    assert FORMATTER.format(record("Zürich 東京 e\u0301 \U0001f600")).endswith(
        "Zürich 東京 e\u0301 \U0001f600"
    )


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTER)
    log = logging.getLogger("gateway")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield stream
    log.removeHandler(handler)
    log.setLevel(level)


def test_the_label_of_an_mcp_server_forges_nothing(
    gateway_server: Any, written: io.StringIO
) -> None:
    pytest.importorskip("gateway_mcp")
    remote = {"enabled": True, "allow_hosts": ["127.0.0.1"], "allow_private": True}
    gateway = gateway_server(
        {
            "models": {"m": {"engine": "scripted"}},
            "tools": {"mcp": {"remote": remote}},
        }
    )
    # Nothing listens at port 1, so that its tools cannot be listed, which is logged.
    tool = {"type": "mcp", "server_label": FORGED, "server_url": "http://127.0.0.1:1/mcp"}
    body = {"model": "m", "input": "x", "tools": [tool]}
    answer = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)
    assert answer.status_code in (200, 400)
    said = written.getvalue()
    assert "forged" in said
    assert all(
        line.startswith("    ")
        for line in said.split("\n")
        if "INFO    gateway.requests: forged" in line
    )
    assert "\x1b" not in said
