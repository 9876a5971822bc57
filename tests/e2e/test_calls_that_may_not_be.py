"""A model that calls tools although it may not: its calls are dropped, and no markup is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway_testing.grammar import fold
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.clock_tool import FUNCTION, ClockPlugin

FORMATS = (
    "harmony", "qwen3", "qwen3_coder", "llama3_json", "pythonic", "mistral", "deepseek_v31", "deepseek_v32",
    "kimi_k2", "glm45", "gemma4", "minimax_m2", "hermes",
)  # fmt: skip
CALL = {"call": {"name": "clock", "arguments": {"a": 1}}}
MINE = {"call": {"name": "mine", "arguments": {"b": 2}}}
RULES = [
    {"when": "go", "pieces": [{"text": "Let me look."}, CALL]},
    {"when": "again", "pieces": [CALL, CALL]},
    {"when": "both", "pieces": [CALL]},
    {"when": "around", "pieces": [{"text": "Before."}, CALL, {"text": "After."}]},
    {"when": "noon", "pieces": [{"text": "Once more."}, CALL, MINE, CALL]},
    {"when": "only this", "pieces": [{"text": '{"name": "clock", "parameters": {}}'}]},
]
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object"}},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        name: {"engine": "scripted", "parser": name, "scripted": {"rules": RULES}}
        for name in FORMATS
    }
    config = {
        "models": models,
        "server": {"chat_tools": ["clock"]},
        "tools": {"clock": {}},
    }
    folder = tmp_path_factory.mktemp("not")
    with run_gateway(config, folder, plugins=[ClockPlugin()]) as running:
        yield running


def responded(gateway: RunningGateway, *, stream: bool, **asked: Any) -> dict[str, Any]:
    with gateway.client() as client:
        made: Any = client.responses.create(stream=stream, **asked)
        if not stream:
            return dict(made.to_dict())
        return dict(fold([event.to_dict() for event in made]))


def texts(response: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", FORMATS)
def test_calls_after_the_limit_are_ignored(
    gateway: RunningGateway, model: str, stream: bool
) -> None:
    response = responded(gateway, model=model, input="go", max_tool_calls=1, stream=stream)
    calls = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert [call["status"] for call in calls] == ["completed"]
    assert texts(response) == "Let me look.Once more."
    assert response["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", FORMATS)
def test_the_limit_is_not_of_the_clients_own_functions(
    gateway: RunningGateway, model: str, stream: bool
) -> None:
    response = responded(
        gateway, model=model, input="both", tools=[FUNCTION], max_tool_calls=1, stream=stream
    )
    kinds = [item["type"] for item in response["output"] if item["type"] != "mcp_list_tools"]
    assert kinds == ["mcp_call", "message", "function_call"]
    assert response["output"][-1]["name"] == "mine"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", FORMATS)
def test_with_the_choice_none_calls_are_ignored(
    gateway: RunningGateway, model: str, stream: bool
) -> None:
    asked: Any = {"model": model, "tools": [FUNCTION], "tool_choice": "none", "stream": stream}
    assert texts(responded(gateway, input="go", **asked)) == "Let me look."
    response = responded(gateway, input="again", parallel_tool_calls=False, **asked)
    assert (texts(response), response["status"]) == ("", "completed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [CHAT_TOOL]])
@pytest.mark.parametrize("model", FORMATS)
def test_so_it_is_in_chat(
    gateway: RunningGateway, model: str, tools: list[Any], stream: bool
) -> None:
    asked: Any = {
        "model": model,
        "messages": [{"role": "user", "content": "go"}],
        "tool_choice": "none",
        "tools": tools,
    }
    with gateway.client() as client:
        if stream:
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look.", "stop")
    assert not choice.message.tool_calls


@pytest.mark.parametrize("model", ["llama3_json", "qwen3"])
def test_text_of_an_enforced_format_is_no_call(gateway: RunningGateway, model: str) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    response = responded(
        gateway,
        stream=False,
        model=model,
        input="only this",
        tools=[FUNCTION],
        tool_choice="none",
        text={"format": {"type": "json_schema", "name": "n", "schema": schema}},
    )
    assert texts(response) == '{"name": "clock", "parameters": {}}'


@pytest.mark.parametrize("stream", [False, True])
def test_text_before_and_after_a_dropped_call_is_of_two_messages(
    gateway: RunningGateway, stream: bool
) -> None:
    asked: Any = {"tools": [FUNCTION], "tool_choice": "none", "stream": stream}
    response = responded(gateway, model="qwen3", input="around", **asked)
    messages = [item["content"][0]["text"] for item in response["output"]]
    assert messages == ["Before.", "After."]


def test_without_tools_call_syntax_is_text(tmp_path: Any) -> None:
    model = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": RULES}}
    config = {"models": {"m": model}}
    with run_gateway(config, tmp_path) as gateway:
        response = responded(gateway, stream=False, model="m", input="go")
    assert "<tool_call>" in texts(response)
