"""Every format behind a real gateway: plain and streamed, with a function that is called and answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_parsers import FORMATS
from gateway_testing.server import RunningGateway, run_gateway

NAMES = (
    "qwen3", "qwen3_coder", "mimo", "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k2", "glm45",
    "glm47", "llama3_json", "mistral", "mistral_v3", "gemma4", "minimax_m2",
    "kimi_k3", "minimax_m3", "pythonic", "lfm2", "cohere_command4", "inkling", "hunyuan_a13b", "apertus",
)  # fmt: skip
"""All of the first priority, and of the others one of each kind."""
CALLING = [spec for spec in FORMATS if spec.name in NAMES]
REASONING = {spec.name: spec.reasoning is not None for spec in FORMATS}
ARGUMENTS = {"city": "Oslo\n<b>", "days": 3, "tags": ["a", "b"], "metric": True}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "metric": {"type": "boolean"},
        },
        "required": ["city"],
    },
}


def rules(spec_name: str) -> list[dict[str, Any]]:
    thought = [{"reasoning": "I should look."}] if REASONING[spec_name] else []
    call = {"call": {"name": "get_weather", "arguments": ARGUMENTS}}
    return [
        {"when": "weather", "pieces": [*thought, call]},
        {"when": "-3 degrees", "pieces": [*thought, {"text": "It is cold."}]},
        {"when": "say hello", "pieces": [*thought, {"text": "Hello, world."}]},
    ]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        spec.name: {
            "engine": "scripted",
            "parser": spec.name,
            "scripted": {"rules": rules(spec.name)},
        }
        for spec in CALLING
    }
    models["mixed"] = {
        "engine": "scripted",
        "reasoning": "seed_oss",
        "tools": "kimi_k2",
        "scripted": {"rules": rules("seed_oss")},
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("formats")) as running:
        yield running


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


def check_call(response: Any, name: str) -> Any:
    expected = ["reasoning"] * REASONING.get(name, True) + ["function_call"]
    assert kinds(response) == expected
    call = response.output[-1]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", ARGUMENTS)
    if REASONING.get(name, True):
        assert response.output[0].content[0].text == "I should look."
        assert response.usage.output_tokens_details.reasoning_tokens > 0
    return call


@pytest.mark.parametrize("name", [*(spec.name for spec in CALLING), "mixed"])
def test_a_function_is_called_and_answered(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        first = client.responses.create(model=name, input="weather?", tools=[TOOL])
        call = check_call(first, name)
        answer = client.responses.create(
            model=name,
            tools=[TOOL],
            previous_response_id=first.id,
            input=[
                {"type": "function_call_output", "call_id": call.call_id, "output": "-3 degrees"}
            ],
        )
        assert answer.output_text == "It is cold."
        with client.responses.stream(model=name, input="weather?", tools=[TOOL]) as stream:
            said = "".join(
                event.delta
                for event in stream
                if event.type == "response.function_call_arguments.delta"
            )
            assert json.loads(said) == ARGUMENTS
            check_call(stream.get_final_response(), name)


CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": TOOL["parameters"]},
}


def said_in_chat(chunks: Any) -> tuple[str, str, dict[int, list[str]], str]:
    """The reasoning, the text, the calls (id, name, arguments) and the finish reason that chunks add up to."""
    reasoning, text, finish = "", "", ""
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            reasoning += getattr(delta, "reasoning_content", None) or ""
            text += delta.content or ""
            finish = choice.finish_reason or finish
            for call in delta.tool_calls or ():
                known = calls.setdefault(call.index, ["", "", ""])
                known[0] = call.id or known[0]
                known[1] += call.function.name or ""
                known[2] += call.function.arguments or ""
    return reasoning, text, calls, finish


@pytest.mark.parametrize("name", [*(spec.name for spec in CALLING), "mixed"])
def test_a_function_is_called_and_answered_in_chat(gateway: RunningGateway, name: str) -> None:
    thought = "I should look." if REASONING.get(name, True) else ""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "weather?"}]
    with gateway.client() as client:

        def ask(messages: list[dict[str, Any]], **more: Any) -> Any:
            create = client.chat.completions.create
            return create(model=name, messages=messages, tools=[CHAT_TOOL], **more)

        message = ask(asked).choices[0].message
        (call,) = message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "get_weather",
            ARGUMENTS,
        )
        assert (message.content or "", getattr(message, "reasoning_content", None) or "") == (
            "",
            thought,
        )

        reasoning, text, calls, finish = said_in_chat(ask(asked, stream=True))
        assert (reasoning, text, finish) == (thought, "", "tool_calls")
        ((call_id, called, arguments),) = calls.values()
        assert (called, json.loads(arguments)) == ("get_weather", ARGUMENTS)

        function = {"name": called, "arguments": arguments}
        asked += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": "-3 degrees"},
        ]
        assert ask(asked).choices[0].message.content == "It is cold."
        assert said_in_chat(ask(asked, stream=True))[:2] == (thought, "It is cold.")


@pytest.mark.parametrize("name", [spec.name for spec in CALLING])
def test_text_comes_without_its_markup(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        assert client.responses.create(model=name, input="say hello").output_text == "Hello, world."
        stream = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "say hello"}], stream=True
        )
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert said == "Hello, world."


@pytest.mark.parametrize("name", ["kimi_k2", "mistral"])
def test_ids_keep_the_familys_rule(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        call = check_call(client.responses.create(model=name, input="weather?", tools=[TOOL]), name)
    if name == "kimi_k2":
        assert call.call_id == "functions.get_weather:0"
    else:
        assert len(call.call_id) == 9


@pytest.mark.parametrize("name", ["qwen3_coder", "kimi_k2", "glm45", "llama3_json", "pythonic"])
def test_a_forced_call_is_made(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        response = client.responses.create(
            model=name, input="nothing of note", tools=[TOOL], tool_choice="required"
        )
    assert response.output[-1].type == "function_call"
    assert isinstance(json.loads(response.output[-1].arguments)["city"], str)
