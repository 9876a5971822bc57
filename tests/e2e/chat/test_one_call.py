"""`parallel_tool_calls: false` ends the answer after its first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

PARSERS = ("qwen3", "qwen3_coder", "kimi_k2")
CALLS = [{"call": {"name": "look", "arguments": {"city": city}}} for city in ("Oslo", "Rome")]
RULE = {"when": "look", "pieces": [{"reasoning": "Two."}, *CALLS, {"text": "Done."}]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        f"{parser}-{size}": {
            "engine": "scripted",
            "parser": parser,
            "scripted": {"rules": [{**RULE, "chunk": size}]},
        }
        for parser in PARSERS
        for size in (None, 1000)
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("one")) as running:
        yield running


@pytest.mark.parametrize("parser", PARSERS)
def test_the_answer_does_not_depend_on_how_the_output_was_cut(
    gateway: RunningGateway, parser: str
) -> None:
    def told(size: int | None) -> Any:
        asked = {
            "model": f"{parser}-{size}",
            "messages": [{"role": "user", "content": "look"}],
            "tools": [TOOL],
            "parallel_tool_calls": False,
            "return_token_ids": True,
        }
        answer = httpx.post(f"{gateway.base_url}/chat/completions", json=asked, timeout=60).json()
        [choice] = answer["choices"]
        [call] = choice["message"]["tool_calls"]
        assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]
        return choice["finish_reason"], call["function"], choice["token_ids"], answer["usage"]

    first = told(None)
    assert (first[0], first[1]["name"]) == ("tool_calls", "look")
    assert told(1000) == first
