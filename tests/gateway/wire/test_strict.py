"""What OpenAI rejects, with its answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from gateway.base.errors import GatewayError
from gateway.wire import strict
from gateway.wire.chat import decode_chat_request
from gateway.wire.completions import decode_completion_request
from gateway.wire.parameter_table import CHAT, COMPLETIONS, RESPONSES
from gateway.wire.request import decode_response_request

DECODE = {
    "responses": decode_response_request,
    "chat": decode_chat_request,
    "completions": decode_completion_request,
}
BASES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "x"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "completions": {"model": "m", "prompt": "x"},
}
LOOSE = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}, "required": ["a"], "additionalProperties": False}  # fmt: skip
OPTIONAL = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
UNANSWERED = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages:"
NO_MORE = "'additionalProperties' is required to be supplied and to be false."
NEEDED = "'required' is required to be supplied and to be an array including every key in properties. Missing 'a'."


USER: dict[str, Any] = {"role": "user", "content": "x"}


def calling(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": each, "type": "function", "function": {"name": "f", "arguments": ""}} for each in ids
    ]
    return {"role": "assistant", "tool_calls": calls}


def tool(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def part(kind: str, role: str = "user") -> dict[str, Any]:
    return {"input": [{"role": role, "content": [{"type": kind, "text": "a"}]}]}


def function(schema: Any) -> dict[str, Any]:
    return {"name": "f", "strict": True, "parameters": schema}


# name: (api, changes, message, param, code)
CASES: dict[str, tuple[str, dict[str, Any], str, str | None, str | None]] = {
    "unknown": ("responses", {"top_k": 3}, "Unknown parameter: 'top_k'.", "top_k", "unknown_parameter"),
    "misplaced": ("responses", {"response_format": {}}, "Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved to 'text.format'. Try again with the new parameter.", "response_format", "unsupported_parameter"),
    "no model": ("responses", {"model": None}, "Missing required parameter: 'model'.", "model", "missing_required_parameter"),
    "empty input": ("responses", {"input": []}, "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.", "input", "missing_required_parameter"),
    "chat's part": ("responses", part("text"), "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'output_text', 'refusal', 'input_file', 'input_audio', 'computer_screenshot', and 'summary_text'.", "input[0].content[0].type", "invalid_value"),
    "an assistant's input": ("responses", part("input_text", "assistant"), "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.", "input[0].content[0]", "invalid_value"),
    "options without stream": ("responses", {"stream_options": {}}, "The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", None),
    "loose format": ("responses", {"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": LOOSE}}}, f"Invalid schema for response_format 'n': In context=('properties', 'a'), {NO_MORE}", "text.format.schema", "invalid_json_schema"),
    "loose function": ("responses", {"tools": [{"type": "function", **function({"type": "object"})}]}, f"Invalid schema for function 'f': In context=(), {NO_MORE}", "tools[0].parameters", "invalid_function_parameters"),
    "a small limit": ("responses", {"max_output_tokens": 15}, "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.", "max_output_tokens", "integer_below_min_value"),
    "no word of JSON": ("responses", {"text": {"format": {"type": "json_object"}}}, "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.", "input", None),
    "no word of JSON in chat": ("chat", {"response_format": {"type": "json_object"}}, "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.", "messages", None),
    "an answer to nothing": ("chat", {"messages": [USER, tool("c")]}, "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.", "messages.[1].role", None),
    "an answer to another call": ("chat", {"messages": [USER, calling("c"), tool("d")]}, "Invalid parameter: 'tool_call_id' of 'd' not found in 'tool_calls' of previous message.", "messages.[2].tool_call_id", None),
    "a call that is not answered": ("chat", {"messages": [USER, calling("c", "d"), tool("c"), USER]}, f"{UNANSWERED} d", "messages.[3].role", None),
    "a call at the end": ("chat", {"messages": [USER, calling("c")]}, f"{UNANSWERED} c", "messages", None),
    "a choice of no tools": ("chat", {"tool_choice": "auto"}, "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", None),
    "parallel calls of no tools": ("chat", {"parallel_tool_calls": True}, "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.", "parallel_tool_calls", None),
    "no tools": ("chat", {"tools": []}, "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.", "tools", "empty_array"),
    "unknown to chat": ("chat", {"top_k": 3}, "Unrecognized request argument supplied: top_k", None, None),
    "two unknown to chat": ("chat", {"top_k": 3, "min_p": 0}, "Unrecognized request arguments supplied: min_p, top_k", None, None),
    "chat without model": ("chat", {"model": None}, "you must provide a model parameter", None, None),
    "five stops": ("chat", {"stop": ["a", "b", "c", "d", "e"]}, "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.", "stop", "array_above_max_length"),
    "chat's options": ("chat", {"stream_options": {"include_usage": True}}, "The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", None),
    "chat's function": ("chat", {"tools": [{"type": "function", "function": function(OPTIONAL)}]}, f"Invalid schema for function 'f': In context=(), {NEEDED}", "tools[0].function.parameters", "invalid_function_parameters"),
    "chat's format": ("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": OPTIONAL}}}, f"Invalid schema for response_format 'n': In context=(), {NEEDED}", "response_format", None),
    "a strict schema of a list": ("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"type": "array", "items": {}}}}}, """Invalid schema for response_format 'a': schema must be a JSON Schema of 'type: "object"', got 'type: "array"'.""", "response_format", None),
    "strict parameters without a type": ("chat", {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {}}}]}, """Invalid schema for function 'f': schema must be a JSON Schema of 'type: "object"', got 'type: "None"'.""", "tools[0].function.parameters", "invalid_function_parameters"),
    "two limits": ("chat", {"max_tokens": 5, "max_completion_tokens": 5}, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", "max_tokens", "invalid_parameter_combination"),
    "many log probabilities": ("completions", {"logprobs": 6}, "Invalid 'logprobs': integer above maximum value. Expected a value <= 5, but got 6 instead.", "logprobs", "integer_above_max_value"),
    "fewer than n": ("completions", {"n": 2, "best_of": 1}, "You requested that the server return more choices than it will generate (HINT: you must set 'n' (currently 2) to be at most 'best_of' (currently 1), or omit either parameter if you don't specifically want to use them.)", "best_of", None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_rejected_only_if_strict(name: str) -> None:
    api, changes, message, param, code = CASES[name]
    body = msgspec.json.encode({**BASES[api], **changes})
    with pytest.raises(GatewayError) as caught:
        DECODE[api](body, strict=True)
    error = caught.value
    assert (error.status, error.type, error.message, error.param, error.code) == (
        400,
        "invalid_request_error",
        message,
        param,
        code,
    )
    DECODE[api](body)


@pytest.mark.parametrize("api", BASES)
def test_what_openai_takes_passes(api: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}  # fmt: skip
    more: dict[str, dict[str, Any]] = {
        "responses": {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
                {"role": "assistant", "content": "a"},
            ],
            "tools": [{"type": "function", **function(schema)}],
            "client_metadata": {"a": "b"},
            "max_output_tokens": 16,
            "text": {"format": {"type": "json_object"}},
            "previous_response_id": "resp_1",
        },
        "chat": {
            "stop": ["a"] * 4,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Answer in JSON."}]},
                *(USER, calling("c", "d"), tool("d"), tool("c"), calling("e"), tool("e"), USER),
            ],
            "response_format": {"type": "json_object"},
        },
        "completions": {"n": 2, "best_of": 2},
    }
    DECODE[api](msgspec.json.encode({**BASES[api], **more[api]}), strict=True)


def test_every_parameter_of_the_sdk_is_known() -> None:
    for base, known in (
        (response_create_params.ResponseCreateParamsBase, RESPONSES.openai),
        (response_create_params.ResponseCreateParamsStreaming, RESPONSES.openai),
        (chat_params.CompletionCreateParamsBase, CHAT.openai),
        (chat_params.CompletionCreateParamsStreaming, CHAT.openai),
        (completion_create_params.CompletionCreateParamsBase, COMPLETIONS.openai),
        (completion_create_params.CompletionCreateParamsStreaming, COMPLETIONS.openai),
    ):
        assert set(base.__annotations__) <= known


def test_many_calls_are_compared_with_their_answers_once() -> None:
    compared = 0

    class CountedId(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            return not self == other

    names = [f"call_{number}" for number in range(500)]
    messages = [calling(*map(CountedId, names)), *map(tool, map(CountedId, reversed(names)))]
    strict.check_chat({"model": "m", "messages": [USER, *messages]})
    assert compared < 10 * len(names)
