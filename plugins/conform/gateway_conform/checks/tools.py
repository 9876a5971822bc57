"""Checks of functions that the client runs."""

from __future__ import annotations

import json

from gateway_conform.chat_stream import fold_chunks
from gateway_conform.checks.asking import (
    FUNCTION,
    chat,
    chat_streamed,
    output_text,
    respond,
    respond_streamed,
)
from gateway_conform.checks.refusals import require_error
from gateway_conform.client import Json
from gateway_conform.outcome import CheckFailed, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.response_stream import fold

FORCED = {"type": "function", "name": "get_weather"}
WEATHER = "What is the weather in Paris?"
CHAT_FUNCTION: Json = {
    "type": "function",
    "function": {name: FUNCTION[name] for name in ("name", "description", "parameters", "strict")},
}
CHAT_FORCED = {"type": "function", "function": {"name": "get_weather"}}


def _require_arguments(text: str) -> None:
    try:
        arguments = json.loads(text)
    except ValueError:
        raise CheckFailed(f"the arguments are no JSON: {text[:200]!r}") from None
    require(isinstance(arguments, dict), f"the arguments are {text[:200]!r}")
    require(list(arguments) == ["city"], f"the arguments are {text[:200]!r}")
    require(isinstance(arguments["city"], str), f"the arguments are {text[:200]!r}")


def _call(response: Json) -> Json:
    calls: list[Json] = [item for item in response["output"] if item["type"] == "function_call"]
    require(len(calls) == 1, f"{len(calls)} calls, not one: {response['output']}")
    call = calls[0]
    require(call["name"] == "get_weather", f"the call is of {call['name']!r}")
    require(call["status"] == "completed", f"the call's status is {call['status']!r}")
    require(call["call_id"], "the call has no call_id")
    _require_arguments(call["arguments"])
    return call


@check("tools", "a function that is chosen is called with arguments of its schema")
def forced(server: ServerUnderTest) -> None:
    response = respond(
        server, input=WEATHER, tools=[FUNCTION], tool_choice=FORCED, max_output_tokens=512
    )
    require(response["status"] == "completed", f"status is {response['status']!r}")
    require(response["tools"][0]["name"] == "get_weather", "the response has other tools")
    require(response["tool_choice"] == FORCED, f"tool_choice is {response['tool_choice']}")
    _call(response)


@check("tools", "tool_choice required gives a call")
def required(server: ServerUnderTest) -> None:
    response = respond(
        server, input=WEATHER, tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False, max_output_tokens=512
    )  # fmt: skip
    _call(response)


@check("tools", "tool_choice none gives no call")
def none(server: ServerUnderTest) -> None:
    response = respond(server, input=WEATHER, tools=[FUNCTION], tool_choice="none")
    kinds = [item["type"] for item in response["output"]]
    require("function_call" not in kinds, "there is a call")


@check("tools", "a streamed call keeps the grammar, and its deltas add up")
def streamed(server: ServerUnderTest) -> None:
    events = respond_streamed(
        server, input=WEATHER, tools=[FUNCTION], tool_choice=FORCED, max_output_tokens=512
    )
    call = _call(fold(events))
    text = "".join(
        event["delta"]
        for event in events
        if event["type"] == "response.function_call_arguments.delta"
    )
    require(text == call["arguments"], f"the deltas are {text!r}")


@check("tools", "the result of a call is input, and the model answers")
def round_trip(server: ServerUnderTest) -> None:
    asked = {"input": WEATHER, "tools": [FUNCTION], "max_output_tokens": 512}
    first = respond(server, **asked, tool_choice=FORCED)
    result = {
        "type": "function_call_output",
        "call_id": _call(first)["call_id"],
        "output": '{"temperature": 21, "sky": "clear"}',
    }
    history = [{"role": "user", "content": WEATHER}, *first["output"], result]
    second = respond(server, **(asked | {"input": history, "tool_choice": "none"}))
    require(output_text(second) or second["status"] == "incomplete", "there is no text")


@check("tools", "an output without its call is refused")
def lonely_output(server: ServerUnderTest) -> None:
    item = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "1"}
    body = {"model": server.model, "input": [{"role": "user", "content": "Hello"}, item]}
    require_error(server.client.post("/responses", body), 400, param="input")


@check("tools", "a call without its output is refused")
def lonely_call(server: ServerUnderTest) -> None:
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": '{"city": "Paris"}',
    }
    body = {"model": server.model, "input": [{"role": "user", "content": WEATHER}, call]}
    require_error(server.client.post("/responses", body), 400, param="input")


@check("tools", "a choice of a function that is not among the tools is refused")
def unknown_choice(server: ServerUnderTest) -> None:
    body = {
        "model": server.model,
        "input": WEATHER,
        "tools": [FUNCTION],
        "tool_choice": {"type": "function", "name": "absent"},
    }
    require_error(server.client.post("/responses", body), 400, param="tool_choice")


@check("tools", "chat: a function that is chosen is called with arguments of its schema")
def forced_in_chat(server: ServerUnderTest) -> None:
    completion = chat(
        server,
        messages=[{"role": "user", "content": WEATHER}],
        tools=[CHAT_FUNCTION],
        tool_choice=CHAT_FORCED,
        max_completion_tokens=512,
    )
    [call] = completion["choices"][0]["message"]["tool_calls"]
    require(call["function"]["name"] == "get_weather", f"the call is {call}")
    _require_arguments(call["function"]["arguments"])


@check("tools", "chat: a streamed call keeps the grammar of chunks")
def streamed_in_chat(server: ServerUnderTest) -> None:
    chunks = chat_streamed(
        server,
        messages=[{"role": "user", "content": WEATHER}],
        tools=[CHAT_FUNCTION],
        tool_choice=CHAT_FORCED,
        max_completion_tokens=512,
    )
    [call] = fold_chunks(chunks)["choices"][0]["message"]["tool_calls"]
    _require_arguments(call["function"]["arguments"])


@check("tools", "chat: the result of a call is a message, and the model answers")
def result_in_chat(server: ServerUnderTest) -> None:
    asked: Json = {"tools": [CHAT_FUNCTION], "max_completion_tokens": 512}
    question = {"role": "user", "content": WEATHER}
    first = chat(server, **asked, messages=[question], tool_choice=CHAT_FORCED)
    message = first["choices"][0]["message"]
    result = {
        "role": "tool",
        "tool_call_id": message["tool_calls"][0]["id"],
        "content": '{"temperature": 21, "sky": "clear"}',
    }
    second = chat(server, **asked, messages=[question, message, result], tool_choice="none")
    [choice] = second["choices"]
    require(choice["message"]["content"] or choice["finish_reason"] == "length", "there is no text")
