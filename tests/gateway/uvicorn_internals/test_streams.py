"""Answers have the same bytes by the fast path and by plain ASGI."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.uvicorn_internals.fast_path import RequestResponseCycle
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
def plain(
    other_uvicorn: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> Iterator[RunningGateway]:
    with (
        caplog.at_level(logging.WARNING),
        run_gateway(CONFIG, tmp_path_factory.mktemp("plain")) as running,
    ):
        assert sum("plain ASGI" in record.message for record in caplog.records) == 1
        yield running


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("fast")) as running:
        yield running


@pytest.fixture(scope="module")
def by_fast_path(fast: RunningGateway) -> dict[str, Answer]:
    """The answers to all requests. Made once, before a test puts another class into uvicorn."""
    return {name: answer(fast, name) for name in REQUESTS}


def answer(gateway: RunningGateway, name: str) -> Answer:
    path, body = REQUESTS[name]
    got = httpx.post(f"{gateway.base_url}/{path}", json={"model": "m", **body}, timeout=60)
    return (
        got.status_code,
        sorted(got.headers),
        CHANGING.sub(b"", got.content.replace(COMMENT, b"")),
    )


@pytest.mark.parametrize(
    "other_uvicorn", ["an attribute has another name", "another class"], indirect=True
)
def test_the_bytes_of_all_answers_are_the_same(
    by_fast_path: dict[str, Answer], plain: RunningGateway
) -> None:
    for name, expected in by_fast_path.items():
        assert answer(plain, name) == expected, name


@pytest.mark.parametrize("other_uvicorn", ["another class"], indirect=True)
@pytest.mark.parametrize("background", [False, True])
def test_a_silent_stream_is_kept_open_by_comments_that_plain_asgi_sends(
    plain: RunningGateway, background: bool
) -> None:
    body = {"model": "m", "input": "slow", "stream": True, "background": background}
    content = httpx.post(f"{plain.base_url}/responses", json=body, timeout=60).content
    assert content.count(COMMENT) >= 2
    assert content.replace(COMMENT, b"").endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.slow  # six seconds of tokens, so that only a machine that stops for four would see a comment
@pytest.mark.parametrize("other_uvicorn", ["another class"], indirect=True)
@pytest.mark.usefixtures("other_uvicorn")
def test_a_stream_that_speaks_has_no_comments_by_plain_asgi(tmp_path: Path) -> None:
    body = {"model": "m", "input": "steady", "stream": True}
    with run_gateway({**CONFIG, "server": {"ping_interval": 4}}, tmp_path) as plain:
        content = httpx.post(f"{plain.base_url}/responses", json=body, timeout=60).content
    assert content.count(b"event: response.output_text.delta") > 10
    assert COMMENT not in content


def test_the_fast_path_is_used_where_it_can_be(
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
    assert len(sent) == 1  # the end


def test_a_plain_answer_passes_uvicorns_send_by(
    fast: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    send = RequestResponseCycle.send

    async def counted(self: Any, message: Any) -> None:
        if self.scope["path"] == "/v1/responses":
            sent.append(message)
        await send(self, message)

    monkeypatch.setattr(RequestResponseCycle, "send", counted)
    with httpx.Client(timeout=30) as client:
        for _ in range(2):  # by the same connection
            body = {"model": "m", "input": "a"}
            got = client.post(f"{fast.base_url}/responses", json=body)
            assert got.status_code == 200
            assert got.headers["x-request-id"]
            assert got.headers["x-litegate-model"] == "m"
            assert got.headers["openai-processing-ms"].isdigit()
            assert int(got.headers["content-length"]) == len(got.content)
        assert sent == []
        got = client.post(f"{fast.base_url}/responses", json=body, headers={"connection": "close"})
        assert got.headers["connection"] == "close"
        assert len(sent) == 2  # as a connection that ends is uvicorn's to close
