"""Harmony behind a real gateway: channels become items, in both APIs, streamed and plain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_testing.server import RunningGateway, run_gateway

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
ARGUMENTS = {"city": "Oslo\n<b>"}
RULES = [
    {
        "when": "weather",
        "pieces": [
            {"reasoning": "I should look."},
            {"text": "Let me look."},
            {"call": {"name": "get_weather", "arguments": ARGUMENTS}},
        ],
    },
    {"when": "-3 degrees", "pieces": [{"reasoning": "So."}, {"text": "It is cold."}]},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "parser": "harmony", "scripted": {"rules": RULES}}
    with run_gateway({"models": {"oss": model}}, tmp_path_factory.mktemp("harmony")) as running:
        yield running


def check(response: Any) -> Any:
    """The items of a response that thinks, says so, and calls."""
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    thought, message, call = response.output
    assert thought.content[0].text == "I should look."
    assert (message.content[0].text, message.phase) == ("Let me look.", "commentary")
    assert (call.name, json.loads(call.arguments), call.status) == (
        "get_weather",
        ARGUMENTS,
        "completed",
    )
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    return call


def test_a_function_is_called_and_answered(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        first = client.responses.create(model="oss", input="weather?", tools=[TOOL])
        call = check(first)
        answer = client.responses.create(
            model="oss",
            tools=[TOOL],
            previous_response_id=first.id,
            input=[
                {"type": "function_call_output", "call_id": call.call_id, "output": "-3 degrees"}
            ],
        )
        assert answer.output_text == "It is cold."
        assert answer.output[-1].phase == "final_answer"
        with client.responses.stream(model="oss", input="weather?", tools=[TOOL]) as stream:
            said = "".join(
                event.delta
                for event in stream
                if event.type == "response.function_call_arguments.delta"
            )
            assert json.loads(said) == ARGUMENTS
            check(stream.get_final_response())


def test_a_function_is_called_and_answered_in_chat(gateway: RunningGateway) -> None:
    asked: list[dict[str, Any]] = [{"role": "user", "content": "weather?"}]
    with gateway.client() as client:
        create = client.chat.completions.create
        message = create(model="oss", messages=asked, tools=[CHAT_TOOL]).choices[0].message
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == ARGUMENTS
        assert message.content == "Let me look."
        assert message.reasoning_content == "I should look."
        chunks = list(create(model="oss", messages=asked, tools=[CHAT_TOOL], stream=True))
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "Let me look."
        streamed = [each.function.arguments for delta in deltas for each in delta.tool_calls or ()]
        assert json.loads("".join(streamed)) == ARGUMENTS
        asked += [
            message.to_dict(),
            {"role": "tool", "tool_call_id": call.id, "content": "-3 degrees"},
        ]
        answer = create(model="oss", messages=asked, tools=[CHAT_TOOL])
        assert answer.choices[0].message.content == "It is cold."
