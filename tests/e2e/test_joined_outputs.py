"""The outputs of an answer that nobody reads before its end are parsed as one, where that changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.plugins.protocols import EngineOutput
from gateway_parsers.kit.machine import Machine
from gateway_testing.server import RunningGateway, run_gateway

RULES = [{"when": "", "repeat": 50, "pieces": [{"raw": "some words and 词 <b> "}]}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        name: {"engine": "scripted", "parser": name, "scripted": {"rules": RULES}}
        for name in ("plain", "qwen3")
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("joined")) as running:
        yield running


@pytest.mark.parametrize(("model", "joins"), [("plain", True), ("qwen3", False)])
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 190])
def test_the_answer_is_that_of_a_stream(
    gateway: RunningGateway,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    tokens: int,
    *,
    joins: bool,
) -> None:
    fed: list[int] = []
    feed = Machine.feed

    thread = gateway.run(_thread())

    def counted(self: Machine, output: EngineOutput) -> Any:
        if threading.get_ident() == thread:  # other tests' gateways have threads of their own
            fed.append(len(output.token_ids))
        return feed(self, output)

    monkeypatch.setattr(Machine, "feed", counted)
    body: dict[str, Any] = {"model": model, "input": "a", "max_output_tokens": tokens}
    at_once = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=30).json()
    assert sum(fed) == tokens
    assert len(fed) == (-(-tokens // 64) if joins else tokens)
    stream = httpx.post(f"{gateway.base_url}/responses", json={**body, "stream": True}, timeout=30)
    last = stream.text.split("\n\n")[-3].partition("data: ")[2]
    streamed = json.loads(last)["response"]
    assert _text(at_once) == _text(streamed)
    assert at_once["usage"] == streamed["usage"]
    assert at_once["usage"]["output_tokens"] == tokens


async def _thread() -> int:
    return threading.get_ident()


def _text(response: dict[str, Any]) -> list[str]:
    return [item["content"][0]["text"] for item in response["output"]]
