"""Texts in the log: only if they are asked for, bounded, on one line, and without credentials."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import hookimpl
from gateway.base.deltas import CallArgumentsDelta, CallStarted, TextDelta
from gateway.config.redaction import Redactor
from gateway.observe.request_context import RequestContext
from gateway.observe.request_log import LONGEST, ContentPolicy, log_request
from gateway.plugins.protocols import Principal
from gateway.process.logs import JsonFormatter, RedactingFormatter
from gateway_testing.pytest_plugin import StartGateway
from tests.waiting import wait_until

SCRIPTED = {"engine": "scripted", "parser": "qwen3"}
BREAKS = {**SCRIPTED, "scripted": {"rules": [{"when": "break", "finish": "error", "pieces": [{"text": "half"}]}]}}  # fmt: skip


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """The log, in each of the formats."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    kind = JsonFormatter if request.param == "json" else RedactingFormatter
    handler.setFormatter(kind(Redactor(["configured-secret"])))
    logger = logging.getLogger("gateway")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.setLevel(level)
    logger.removeHandler(handler)


def lines(written: io.StringIO, kind: str, number: int = 1) -> list[str]:
    def found() -> list[str]:
        return [x for x in written.getvalue().splitlines() if kind in x]

    wait_until(lambda: len(found()) >= number, f"{number} lines of {kind}")
    return found()


def post(gateway: Any, **body: Any) -> httpx.Response:
    return httpx.post(f"{gateway.base_url}/responses", json={"model": "m", **body})


def test_by_default_no_text_is_logged(gateway_server: StartGateway, written: io.StringIO) -> None:
    gateway = gateway_server({"models": {"m": BREAKS}})
    post(gateway, input="xylophone break")
    post(gateway, input=5)
    lines(written, "route", 2)
    assert "xylophone" not in written.getvalue()
    assert "half" not in written.getvalue()


def test_errors_logs_the_texts_of_failed_requests_only(
    gateway_server: StartGateway, written: io.StringIO
) -> None:
    gateway = gateway_server({"server": {"log_content": "errors"}, "models": {"m": BREAKS}})
    post(gateway, input="fine xylophone")
    post(gateway, input="break trombone")
    post(gateway, input="refused bassoon", temperature=99)
    lines(written, "route", 3)
    found = written.getvalue()
    assert "xylophone" not in found
    assert "trombone" in found
    assert "half" in found
    assert "bassoon" in found


def test_credentials_of_tools_are_removed(
    gateway_server: StartGateway, written: io.StringIO
) -> None:
    gateway = gateway_server({"server": {"log_content": "all"}, "models": {"m": SCRIPTED}})
    tool = {
        "type": "mcp", "server_label": "x", "server_url": "https://mcp.invalid/", "authorization": "tok-1-hidden",
        "headers": {"X-Odd": 'tok-2-"}hidden', "Other": "tok-3-hidden"},
    }  # fmt: skip
    post(gateway, input="my configured-secret and Authorization: Bearer tok-4-hidden", tools=[tool])
    lines(written, "route")
    assert "server_label" in written.getvalue()
    assert "tok-" not in written.getvalue()
    assert "configured-secret" not in written.getvalue()


def test_a_text_cannot_forge_a_line(gateway_server: StartGateway, written: io.StringIO) -> None:
    gateway = gateway_server({"server": {"log_content": "all"}, "models": {"m": SCRIPTED}})
    forged = "x\n2026-01-01 00:00:00,000 INFO    gateway.requests: forged\r\n\u2028y\x1b[31m"
    post(gateway, input=forged)
    lines(written, "route")
    assert all("forged" not in line or "input" in line for line in written.getvalue().split("\n"))
    assert "\x1b" not in written.getvalue()


class Redacts:
    __name__ = "gateway_redacts"

    def __init__(self, old: str, new: str | None) -> None:
        self.__name__ = f"gateway_redacts_{old}"
        self._old, self._new = old, new

    @hookimpl
    def gateway_redact_content(self, text: str) -> str | None:
        if self._new is None:
            raise RuntimeError("broken redaction")
        return text.replace(self._old, self._new)


def test_plugins_redact_one_after_another(
    gateway_server: StartGateway, written: io.StringIO
) -> None:
    config = {"server": {"log_content": "all"}, "models": {"m": SCRIPTED}}
    gateway = gateway_server(config, plugins=[Redacts("oboe", "[1]"), Redacts("harp", "[2]")])
    post(gateway, input="oboe and harp and lute")
    [line] = lines(written, "content input" if "INFO" in written.getvalue() else '"input"')
    assert "lute" in line
    assert "oboe" not in line
    assert "harp" not in line


def test_where_redaction_fails_no_text_is_logged(
    gateway_server: StartGateway, written: io.StringIO
) -> None:
    config = {"server": {"log_content": "all"}, "models": {"m": SCRIPTED}}
    gateway = gateway_server(config, plugins=[Redacts("oboe", None)])
    assert post(gateway, input="oboe").status_code == 200
    lines(written, "route")
    assert "oboe" not in written.getvalue()
    assert "[not logged]" in written.getvalue()


def test_long_texts_are_cut() -> None:
    content = ContentPolicy(errors_only=False).content()
    content.read(b"i" * 10_000_000)
    for _ in range(10_000):
        content.see([TextDelta("o" * 100)])
    texts = content.texts(failed=False)
    assert texts is not None
    assert {len(text) for text in texts.values()} == {LONGEST + 1}
    assert len(content.input) < 100_000


def test_redaction_sees_beyond_the_cut() -> None:
    """A secret at the cut is not halved before it is looked for."""
    seen: list[str] = []

    def redact(text: str, kind: str) -> str:
        seen.append(text)
        return text.replace("tail-of-secret", "")

    content = ContentPolicy(errors_only=False, redact=[redact]).content()
    content.see([TextDelta("o" * (LONGEST - 4)), TextDelta("tail-of-secret")])
    texts = content.texts(failed=False)
    assert texts is not None
    assert texts["output"] == "o" * (LONGEST - 4)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=20), st.text(min_size=1))  # fmt: skip
def test_a_credential_anywhere_in_a_body_is_removed(body: Any, secret: str) -> None:
    marked = f"SECRET{secret}SECRET"
    whole = {"before": body, "tools": [{"headers": {"h": marked}, "authorization": marked}], "after": body}  # fmt: skip
    content = ContentPolicy(errors_only=False).content()
    content.read(msgspec.json.encode(whole))
    texts = content.texts(failed=False)
    assert texts is not None
    assert "SECRET" not in texts["input"]


def test_the_name_of_a_key_cannot_forge_a_field_or_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stats = RequestContext("req_1")
    stats.principal = Principal(name="eve status=500\nforged")
    with caplog.at_level(logging.INFO, "gateway.requests"):
        log_request(stats)
    [line] = [RedactingFormatter(Redactor()).format(record) for record in caplog.records]
    assert 'key="eve status=500\\nforged"' in line
    assert "\n" not in line


def test_calls_are_logged_with_their_arguments(caplog: pytest.LogCaptureFixture) -> None:
    stats = RequestContext("req_1")
    stats.content = content = ContentPolicy(errors_only=False).content()
    content.see([CallStarted(name="weather"), CallArgumentsDelta('{"city": "Rome"}')])
    with caplog.at_level(logging.INFO, "gateway.requests"):
        log_request(stats)
        log_request(stats)
    said = [record for record in caplog.records if record.message == "content"]
    assert len(said) == 1
    assert said[0].gateway_texts["output"] == '\nweather {"city": "Rome"}'  # type: ignore[attr-defined]
