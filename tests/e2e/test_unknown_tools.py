"""A model that calls a tool which does not exist reads so and tries again, if the gateway runs all tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.clock_tool import FUNCTION, ClockPlugin
from tests.plugins.messages.messages_grammar import fold_events, parse_events

RULES = [
    {"when": "go", "pieces": [{"reasoning": "Hm."}, {"call": {"name": "nothing", "arguments": {"a": 1}}}]},
    {"when": "There is no tool named 'nothing'. The tools are: clock.", "pieces": [{"text": "So I say it."}]},
]  # fmt: skip


@pytest.fixture(scope="module", params=["harmony", "qwen3"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "parser": request.param, "scripted": {"rules": RULES}}
    config = {
        "models": {"m": model},
        "tools": {"clock": {}},
        "server": {"chat_tools": ["clock"]},
        "apis": {"messages": {"offer_tools": True}},
    }
    folder = tmp_path_factory.mktemp("unknown")
    with run_gateway(config, folder, plugins=[ClockPlugin()]) as running:
        yield running


def test_the_model_reads_that_there_is_no_such_tool(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go")
        assert made.output_text == "So I say it."
        [call] = [item for item in made.output if item.type == "mcp_call"]
        assert (call.name, call.status) == ("nothing", "failed")
        assert "There is no tool named 'nothing'" in str(call.error)
        events = list(client.responses.create(model="m", input="go", stream=True))
    assert events[-1].response.output_text == "So I say it."
    fold([event.to_dict() for event in events])


def test_a_client_with_tools_gets_the_call(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go", tools=[FUNCTION])
    assert made.output[-1].type == "function_call"
    assert made.output[-1].name == "nothing"


@pytest.mark.parametrize("stream", [False, True])
def test_so_it_is_in_chat(gateway: RunningGateway, stream: bool) -> None:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    with gateway.client() as client:
        if stream:
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
    assert choice.message.content == "So I say it."
    assert not choice.message.tool_calls
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_chat_with_tools_gets_the_call(gateway: RunningGateway, stream: bool) -> None:
    function = {key: value for key, value in FUNCTION.items() if key != "type"}
    asked: Any = {
        "model": "m",
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": function}],
    }
    with gateway.client() as client:
        if stream:
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
    [call] = choice.message.tool_calls or ()
    assert (call.function.name, choice.finish_reason) == ("nothing", "tool_calls")


def messages(gateway: RunningGateway, *, stream: bool = False, **body: Any) -> dict[str, Any]:
    sent = {"model": "m", "max_tokens": 200, "stream": stream, **body}
    sent.setdefault("messages", [{"role": "user", "content": "go"}])
    answer = httpx.post(f"{gateway.base_url}/messages", json=sent, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(fold_events(parse_events(answer.content)) if stream else answer.json())


@pytest.mark.parametrize("stream", [False, True])
def test_so_it_is_in_messages(gateway: RunningGateway, stream: bool) -> None:
    message = messages(gateway, stream=stream)
    [call] = [block for block in message["content"] if block["type"] == "mcp_tool_use"]
    [result] = [block for block in message["content"] if block["type"] == "mcp_tool_result"]
    assert (call["name"], call["server_name"], call["input"]) == ("nothing", "unknown", {"a": 1})
    assert (result["tool_use_id"], result["is_error"]) == (call["id"], True)
    assert "There is no tool named 'nothing'" in result["content"][0]["text"]
    assert (message["content"][-1]["text"], message["stop_reason"]) == ("So I say it.", "end_turn")
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": "go"},
    ]
    again = messages(gateway, messages=history)
    assert again["content"][-1]["text"] == "So I say it.", "the answer can be sent back"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_messages_with_tools_gets_the_call(
    gateway: RunningGateway, stream: bool
) -> None:
    tool = {"name": "mine", "input_schema": {"type": "object"}}
    message = messages(gateway, stream=stream, tools=[tool])
    [call] = [block for block in message["content"] if block["type"] == "tool_use"]
    assert (call["name"], call["input"], message["stop_reason"]) == (
        "nothing",
        {"a": 1},
        "tool_use",
    )


def test_the_limit_on_calls_counts_them(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go", max_tool_calls=1)
    assert made.status == "completed"
