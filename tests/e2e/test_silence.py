"""Streams of slow engines, and clients that fall silent in the middle of a body."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.testing.grammar import fold, parse_sse
from gateway.testing.server import RunningGateway, run_gateway

COMMENT = b": keep-alive\n\n"
RULES = [
    {"when": "slow", "delay_ms": 800, "pieces": [{"text": "a b"}]},
    {"when": "quick", "delay_ms": 20, "repeat": 50, "pieces": [{"text": "a "}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"ping_interval": 0.1},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("silence")) as running:
        yield running


def stream(gateway: RunningGateway, path: str = "responses", **body: Any) -> bytes:
    body = {"model": "m", "stream": True, **body}
    answer = httpx.post(f"{gateway.base_url}/{path}", json=body, timeout=60)
    assert answer.status_code == 200
    return answer.content


@pytest.mark.parametrize("background", [False, True])
def test_a_silent_stream_is_kept_open_by_comments(
    gateway: RunningGateway, background: bool
) -> None:
    body = stream(gateway, input="slow", background=background)
    assert body.count(COMMENT) >= 4
    assert fold(parse_sse(body.replace(COMMENT, b"")))["status"] == "completed"


def test_a_silent_chat_stream_is_kept_open_once_it_has_begun(gateway: RunningGateway) -> None:
    body = stream(gateway, "chat/completions", messages=[{"role": "user", "content": "slow"}])
    assert COMMENT in body
    frames = body.replace(COMMENT, b"").split(b"\n\n")
    assert all(frame.startswith(b"data: ") for frame in frames if frame)


def test_a_stream_that_speaks_has_no_comments(tmp_path: Path) -> None:
    """It takes longer than the interval, which is so long that a machine under load speaks within it."""
    rules = [{"when": "quick", "delay_ms": 25, "repeat": 50, "pieces": [{"text": "a "}]}]
    config = {
        "server": {"ping_interval": 2},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
    }
    with run_gateway(config, tmp_path) as steady:
        assert COMMENT not in stream(steady, input="quick")


def test_the_official_client_passes_over_the_comments(gateway: RunningGateway) -> None:
    with (
        gateway.client() as client,
        client.responses.stream(model="m", input="slow") as events,
    ):
        assert events.get_final_response().output_text == "a b"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "quick", "stream": True}),
        ("responses", {"input": "quick"}),
        ("chat/completions", {"messages": [{"role": "user", "content": "quick"}], "stream": True}),
    ],
)
def test_a_client_of_http_1_0_gets_a_body_without_chunks(
    gateway: RunningGateway, path: str, body: Any
) -> None:
    url = httpx.URL(f"{gateway.base_url}/{path}")
    sent = json.dumps({"model": "m", **body}).encode()
    with socket.create_connection((url.host, url.port), timeout=60) as old:
        old.sendall(
            b"POST %b HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (url.raw_path, len(sent))
        )
        old.sendall(sent)
        answer = b"".join(iter(lambda: old.recv(65536), b""))  # to the connection's end
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in head.lower()
    if "stream" not in body:
        assert json.loads(content)["status"] == "completed"
    elif path == "responses":
        assert fold(parse_sse(content))["status"] == "completed"
    else:
        assert all(
            part.startswith(b"data: ") for part in content.removesuffix(b"\n\n").split(b"\n\n")
        )
        assert content.endswith(b"data: [DONE]\n\n")


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_ours(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(gateway.base_url.split(":")[2].partition("/")[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
                    b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
                )
                time.sleep(0.05)
        time.sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []
