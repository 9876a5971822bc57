"""Streams whose chunks are written directly have the same bytes as those that are sent by ASGI alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway_testing.server import RunningGateway, run_gateway

Answer = tuple[int, list[str], bytes]
COMMENT = b": keep-alive\n\n"
CONFIG: dict[str, Any] = {
    "server": {"ping_interval": 0.1},
    "models": {
        "m": {
            "engine": "scripted",
            "scripted": {
                "rules": [
                    {"when": "slow", "delay_ms": 1000, "pieces": [{"text": "a b"}]},
                    {"when": "quick", "delay_ms": 5, "repeat": 30, "pieces": [{"text": "a "}]},
                    {"when": "steady", "delay_ms": 100, "repeat": 60, "pieces": [{"text": "a "}]},
                ]
            },
        }
    },
}
CHAT = {"messages": [{"role": "user", "content": "quick"}]}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "response": ("responses", {"input": "quick", "stream": True}),
    "background response": ("responses", {"input": "quick", "stream": True, "background": True}),
    "response as a whole": ("responses", {"input": "quick"}),
    "chat": ("chat/completions", {**CHAT, "stream": True}),
    "chat as a whole": ("chat/completions", CHAT),
    "completion": ("completions", {"prompt": "quick", "stream": True}),
    "error": ("responses", {"input": 1, "stream": True}),
}  # fmt: skip
CHANGING = re.compile(
    rb'"(?:id|item_id|response_id|previous_response_id)":"[^"]*"|"(?:created|created_at|completed_at)":[0-9.]+'
    rb'|"obfuscation":"[^"]*"'
)


@pytest.fixture
def other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as by a server that does not tell the connection of a request."""
    monkeypatch.setattr("gateway.http.connections.http_protocol.SCOPE_KEY", "other.connection")


@pytest.fixture
def plain(other_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("fast")) as running:
        yield running


def answer(gateway: RunningGateway, name: str) -> Answer:
    path, body = REQUESTS[name]
    got = httpx.post(f"{gateway.base_url}/{path}", json={"model": "m", **body}, timeout=60)
    return (
        got.status_code,
        sorted(got.headers),
        CHANGING.sub(b"", got.content.replace(COMMENT, b"")),
    )


def test_the_bytes_of_all_answers_are_the_same(
    fast: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {name: answer(fast, name) for name in REQUESTS}
    monkeypatch.setattr("gateway.http.connections.http_protocol.SCOPE_KEY", "other.connection")
    with run_gateway(CONFIG, tmp_path) as plain:
        assert {name: answer(plain, name) for name in REQUESTS} == expected


@pytest.mark.parametrize("background", [False, True])
def test_a_silent_stream_is_kept_open_by_comments_that_plain_asgi_sends(
    plain: RunningGateway, background: bool
) -> None:
    body = {"model": "m", "input": "slow", "stream": True, "background": background}
    content = httpx.post(f"{plain.base_url}/responses", json=body, timeout=60).content
    assert content.count(COMMENT) >= 2
    assert content.replace(COMMENT, b"").endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.slow  # six seconds of tokens, so that only a machine that stops for four would see a comment
@pytest.mark.usefixtures("other_server")
def test_a_stream_that_speaks_has_no_comments_by_plain_asgi(tmp_path: Path) -> None:
    body = {"model": "m", "input": "steady", "stream": True}
    with run_gateway({**CONFIG, "server": {"ping_interval": 4}}, tmp_path) as plain:
        content = httpx.post(f"{plain.base_url}/responses", json=body, timeout=60).content
    assert content.count(b"event: response.output_text.delta") > 10
    assert COMMENT not in content


def test_the_chunks_of_a_stream_pass_uvicorns_send_by(
    fast: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    send = RequestResponseCycle.send

    async def counted(self: Any, message: Any) -> None:
        if self.scope["path"] == "/v1/responses":  # others are asked for their models meanwhile
            sent.append(message)
        await send(self, message)

    monkeypatch.setattr(RequestResponseCycle, "send", counted)
    assert answer(fast, "response")[2].count(b"event: response.output_text.delta") > 10
    assert len(sent) == 3  # the head, the first part and the end
