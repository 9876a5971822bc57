"""Unknown members within a request: found wherever they are, and nothing that OpenAI's SDK sends is one."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import response_create_params, response_input_item_param, tool_param
from typing_extensions import is_typeddict

from gateway.base.errors import InvalidRequest
from gateway.wire.chat import AnswerMessage, decode_chat_request
from gateway.wire.chat_messages import unknown_message_member
from gateway.wire.common import encode
from gateway.wire.request import ResponseRequest, decode_response_request
from gateway.wire.strict import INPUT_TOKENS
from gateway.wire.unknown_members import unknown_member

OK = {"role": "user", "content": "x"}


def alternatives(kind: Any) -> Iterator[Any]:
    origin = get_origin(kind)
    if origin is Union or origin is types.UnionType:
        for each in get_args(kind):
            yield from alternatives(each)
    elif origin is typing.Annotated or str(origin).endswith("Required"):
        yield from alternatives(get_args(kind)[0])
    elif kind is not type(None):
        yield kind


def made(kind: Any, turn: int) -> Any:
    """A value of an SDK's type with all of its members; `turn` chooses among the alternatives of unions."""
    kinds = list(alternatives(kind))
    one = kinds[turn % len(kinds)]
    origin = get_origin(one)
    if is_typeddict(one):
        return {
            key: made(below, turn)
            for key, below in get_type_hints(one, include_extras=True).items()
        }
    if origin is Literal:
        return get_args(one)[0]
    if origin is dict:
        return {"k": made(get_args(one)[1], turn)}
    if origin is not None and issubclass(origin, Iterable):
        return [made(get_args(one)[0], turn)]
    return {"free": {"form": 1}} if one is object else "x"


@pytest.mark.parametrize("turn", range(12))
def test_nothing_that_the_sdk_sends_is_unknown(turn: int) -> None:
    hints = get_type_hints(response_create_params.ResponseCreateParamsBase, include_extras=True)
    for name, kind in hints.items():
        for each in alternatives(kind):
            assert unknown_member({name: made(each, turn)}, ResponseRequest) is None
    for item in alternatives(response_input_item_param.ResponseInputItemParam):
        assert unknown_member({"input": [made(item, turn)]}, ResponseRequest) is None
    for message in alternatives(ChatCompletionMessageParam):
        assert unknown_message_member([made(message, turn)]) is None
    for tool in alternatives(tool_param.ToolParam):
        assert unknown_member({"tools": [made(tool, turn)]}, ResponseRequest) is None


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"text": {"zzz": 1}}, "text.zzz"),
        ({"text": {"format": {"type": "text", "strict": True}}}, "text.format.strict"),
        ({"reasoning": {"effort": "low", "max_tokens": 5}}, "reasoning.max_tokens"),
        ({"input": [OK, {**OK, "cache_control": {}}]}, "input[1].cache_control"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "a": 1}]}]}, "input[0].content[0].a"),
        ({"input": [OK, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "parsed_arguments": None}]}, "input[1].parsed_arguments"),
        ({"input": [OK, {"id": "rs_1", "summary": []}]}, "input[1].summary"),
        ({"tools": [{"type": "function", "name": "f", "function": {}}]}, "tools[0].function"),
        ({"tools": [{"type": "mcp", "server_label": "m", "require_approval": {"always": {"names": []}}}]}, "tools[0].require_approval.always.names"),
        ({"tool_choice": {"type": "function", "name": "f", "mode": "x"}}, "tool_choice.mode"),
        ({"prompt": {"id": "p", "variables": {"v": {"type": "input_text", "text": "x", "a": 1}}}}, "prompt.variables.v.a"),
    ],
)  # fmt: skip
def test_a_strict_server_refuses_what_it_finds(parameters: dict[str, Any], place: str) -> None:
    body = encode({"model": "m", "input": "x", **parameters})
    with pytest.raises(InvalidRequest) as caught:
        decode_response_request(body, strict=True)
    assert (caught.value.param, caught.value.code) == (place, "unknown_parameter")
    assert caught.value.message == f"Unknown parameter: '{place}'."


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "user", "content": "x", "cache_control": {}}, "cache_control"),
        ({"role": "system", "content": "x", "tool_calls": []}, "tool_calls"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "a": 1}]}, "content[0].a"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "a": 1}}]}, "content[0].image_url.a"),
        ({"role": "assistant", "tool_calls": [CALL, {**CALL, "thought": 1}]}, "tool_calls[1].thought"),
        ({"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "", "a": 1}}]}, "tool_calls[0].function.a"),
        ({"role": "tool", "tool_call_id": "c", "content": "x", "is_error": True}, "is_error"),
    ],
)  # fmt: skip
def test_so_it_is_with_the_messages_of_a_chat(message: dict[str, Any], place: str) -> None:
    body = encode({"model": "m", "messages": [OK, message]})
    decode_chat_request(body)
    with pytest.raises(InvalidRequest) as caught:
        decode_chat_request(body, strict=True)
    assert (caught.value.param, caught.value.code) == (f"messages[1].{place}", "unknown_parameter")
    assert caught.value.message == f"Unknown parameter: 'messages[1].{place}'."


def test_an_answer_of_a_chat_can_be_sent_back() -> None:
    members = [field.encode_name for field in msgspec.structs.fields(AnswerMessage)]
    message = dict.fromkeys(members) | {"role": "assistant", "annotations": [{"a": 1}]}
    assert unknown_message_member([message]) is None


@pytest.mark.parametrize(
    "messages", ["x", {}, [1, None, {}, {"role": 1}, {"role": "poet", "a": 1}, {"role": "user", "content": [[], 1]}]]
)  # fmt: skip
def test_messages_of_a_wrong_type_are_left_to_the_conversion(messages: Any) -> None:
    assert unknown_message_member(messages) is None


def test_personality_is_a_parameter_of_input_tokens_alone() -> None:
    body = encode({"model": "m", "input": "x", "personality": "friendly"})
    decode_response_request(body, strict=True, known=INPUT_TOKENS)
    with pytest.raises(InvalidRequest) as caught:
        decode_response_request(body, strict=True)
    assert caught.value.param == "personality"


def test_a_long_name_is_not_sent_back_whole() -> None:
    body = encode({"model": "m", "input": "x", "text": {"z" * 50_000: 1}})
    with pytest.raises(InvalidRequest) as caught:
        decode_response_request(body, strict=True)
    assert len(caught.value.message) < 200
    assert len(caught.value.param or "") < 200


def test_free_form_json_is_not_looked_into() -> None:
    function = {"type": "function", "name": "f", "parameters": {"type": "object", "x-a": {"b": 1}}}
    shape = {"type": "json_schema", "name": "n", "schema": {"type": "object", "x-a": 1}}
    for parameters in (
        {"tools": [function]},
        {"text": {"format": shape}},
        {"metadata": {"anything": "x"}},
        {"client_metadata": {"a": {"b": 1}}},
    ):
        assert unknown_member(parameters, ResponseRequest) is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"text": [1]},
        {"tools": {"a": {}}},
        {"input": [[], 1, None, {}, {"type": ["x"]}, {"type": "poem", "a": 1}]},
        {"tool_choice": [{}]},
        {"prompt": {"id": "p", "variables": [{}]}},
    ],
)
def test_what_has_a_wrong_type_is_left_to_the_conversion(parameters: dict[str, Any]) -> None:
    assert unknown_member(parameters, ResponseRequest) is None
