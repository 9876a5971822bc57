"""What is counted over several generations of one answer: the limit of tokens, and the places of log probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.testing.server import RunningGateway, run_gateway
from gateway.tools.functions import functions

RULES = [
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
        "server": {"chat_tools": ["probe"]},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"probe": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("turns"), plugins=[Probe()]) as running:
        yield running


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


@pytest.mark.parametrize("url", ["responses", "chat/completions"])
def test_logprobs_after_a_tool_call_are_those_of_the_text(
    gateway: RunningGateway, url: str
) -> None:
    """Each generation counts its characters anew."""
    responses = {"input": "look", "top_logprobs": 2, "include": ["message.output_text.logprobs"]}
    chat = {"messages": [{"role": "user", "content": "look"}], "logprobs": True, "top_logprobs": 2}
    body = {"model": "m", **(responses if url == "responses" else chat)}
    made = httpx.post(f"{gateway.base_url}/{url}", json=body, timeout=30).json()
    if url == "responses":
        part = made["output"][-1]["content"][0]
        text, logprobs = part["text"], part["logprobs"]
    else:
        choice = made["choices"][0]
        text, logprobs = choice["message"]["content"], choice["logprobs"]["content"]
    assert text == "One two three."
    assert b"".join(bytes(each["bytes"]) for each in logprobs).decode() == text
