"""Several generations of one answer: what is counted (the limit of tokens, the usage, the places of log
probabilities), and what goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.tools.functions import functions
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

RULES = [
    {"when": "look", "pieces": [{"reasoning": "Hm."}, {"call": {"name": "probe", "arguments": {}}}]},
    {"when": "probed", "pieces": [{"text": "One two three."}]},
    {"when": "break", "pieces": [{"text": '<tool_call>\n{"name": "probe", "arguments": {"deep": "with'}]},
    {"when": "not valid JSON", "pieces": [{"text": "I could not look."}]},
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


def test_usage_tells_the_turns_apart(gateway: RunningGateway) -> None:
    url = f"{gateway.base_url}/responses"
    made = httpx.post(url, json={"model": "m", "input": "look"}, timeout=60).json()
    streamed = httpx.post(url, json={"model": "m", "input": "look", "stream": True}, timeout=60)
    usage, read, written = parts_of(made["usage"])
    assert fold(parse_sse(streamed.content))["usage"] == usage
    assert httpx.get(f"{url}/{made['id']}", timeout=60).json()["usage"] == usage
    for turns, total in (
        (read["input_tokens_per_turn"], usage["input_tokens"]),
        (read["cached_tokens_per_turn"], read["cached_tokens"]),
        (written["output_tokens_per_turn"], usage["output_tokens"]),
        (written["tool_output_tokens_per_turn"], written["tool_output_tokens"]),
    ):
        assert (len(turns), sum(turns)) == (2, total)
    (before, after), (called, _) = read["input_tokens_per_turn"], written["output_tokens_per_turn"]
    assert written["tool_output_tokens"] == after - before - called > 0


def test_usage_of_one_turn_has_openais_fields_only(gateway: RunningGateway) -> None:
    body = {"model": "m", "input": "probed"}
    made = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60).json()
    _, read, written = parts_of(made["usage"])
    assert set(read) == {"cached_tokens", "cache_write_tokens"}
    assert set(written) == {"reasoning_tokens"}


def parts_of(usage: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """It, and its details of the input and of the output."""
    return usage, usage["input_tokens_details"], usage["output_tokens_details"]


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


@pytest.mark.parametrize("url", ["responses", "chat/completions"])
def test_a_call_that_the_model_breaks_off_goes_back_to_it(
    gateway: RunningGateway, url: str
) -> None:
    """The answer does not end with neither text nor a call for the client."""
    messages = {"messages": [{"role": "user", "content": "break"}]}
    body = {"model": "m", **({"input": "break"} if url == "responses" else messages)}
    made = httpx.post(f"{gateway.base_url}/{url}", json=body, timeout=30).json()
    if url == "responses":
        call, message = made["output"]
        assert made["status"] == "completed"
        assert (call["type"], call["name"]) == ("mcp_call", "probe")
        assert "not valid JSON" in json.dumps(call["error"])
        text = message["content"][0]["text"]
    else:
        text = made["choices"][0]["message"]["content"]
    assert text == "I could not look."
