"""Streams of slow engines, clients that leave in the middle of a body, and the limit of tokens over several turns."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.testing.grammar import fold, parse_sse
from gateway.testing.server import RunningGateway, run_gateway
from gateway.tools.functions import functions

COMMENT = b": keep-alive\n\n"
RULES = [
    {"when": "slow", "delay_ms": 450, "pieces": [{"text": "a b"}]},
    {"when": "quick", "delay_ms": 20, "repeat": 30, "pieces": [{"text": "a "}]},
    {"when": "look", "pieces": [{"reasoning": "Hm."}, {"call": {"name": "probe", "arguments": {}}}]},
    {"when": "probed", "pieces": [{"text": "One two three."}]},
]  # fmt: skip


def probe() -> str:
    """Look."""
    return "probed"


class Probe:
    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("probe", functions("probe", probe))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"ping_interval": 0.1},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"probe": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("silence"), plugins=[Probe()]) as running:
        yield running


def stream(gateway: RunningGateway, path: str = "responses", **body: Any) -> bytes:
    body = {"model": "m", "stream": True, **body}
    answer = httpx.post(f"{gateway.base_url}/{path}", json=body, timeout=30)
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


def test_a_stream_that_speaks_has_no_comments(gateway: RunningGateway) -> None:
    assert COMMENT not in stream(gateway, input="quick")


def test_the_official_client_passes_over_the_comments(gateway: RunningGateway) -> None:
    with (
        gateway.client() as client,
        client.responses.stream(model="m", input="slow") as events,
    ):
        assert events.get_final_response().output_text == "a b"


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_ours(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(gateway.base_url.split(":")[2].partition("/")[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
                )
                time.sleep(0.05)
        time.sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_tool_loop_never_writes_more_tokens_than_it_may(gateway: RunningGateway) -> None:
    whole = httpx.post(f"{gateway.base_url}/responses", json={"model": "m", "input": "look"}).json()
    assert whole["status"] == "completed"
    needed = whole["usage"]["output_tokens"]
    spent_between = 0
    for limit in range(1, needed + 1):
        body = {"model": "m", "input": "look", "max_output_tokens": limit}
        made = httpx.post(f"{gateway.base_url}/responses", json=body).json()
        assert made["usage"]["output_tokens"] <= limit, json.dumps(made)
        assert (made["status"] == "completed") == (limit == needed)
        if limit < needed:
            assert made["incomplete_details"] == {"reason": "max_output_tokens"}
            called = [item for item in made["output"] if item["type"] == "mcp_call"]
            written = [item for item in made["output"] if item["type"] == "message"]
            spent_between += bool(called and called[0]["output"]) and not written
    assert spent_between, "some limit ends just where the first turn does"
