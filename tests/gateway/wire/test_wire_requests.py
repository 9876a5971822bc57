"""Requests: what is accepted, and how every mistake is told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest
from gateway.wire import content, items, tools
from gateway.wire.chat import decode_chat_request
from gateway.wire.common import encode
from gateway.wire.field_errors import MAX_ITEMS
from gateway.wire.item_decoding import decode_items
from gateway.wire.item_lists import with_ids
from gateway.wire.request import (
    convert_response_request,
    decode_conversation_request,
    decode_response_request,
)


def request_of(**parameters: Any) -> Any:
    return decode_response_request(encode({"model": "m", "input": "hi", **parameters}))


def refusal_of(body: Any) -> InvalidRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(InvalidRequest) as caught:
        decode_response_request(raw)
    assert caught.value.message
    assert len(caught.value.message) < 1000
    caught.value.message.encode()
    return caught.value


def message_of(*parts: Any, role: str = "user") -> list[Any]:
    return [{"role": role, "content": list(parts)}]


OK = {"type": "message", "role": "user", "content": "hi"}
SCHEMA = {"type": "json_schema", "name": "n", "schema": {}}

TYPE = "invalid_type"
VALUE = "invalid_value"
MISSING = "missing_required_parameter"

BAD: list[tuple[dict[str, Any], str, str]] = [
    # plain parameters
    ({"temperature": "hot"}, "temperature", TYPE),
    ({"temperature": True}, "temperature", TYPE),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
    ({"temperature": -1}, "temperature", "decimal_below_min_value"),
    ({"top_p": 1.5}, "top_p", "decimal_above_max_value"),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"top_logprobs": -1}, "top_logprobs", "integer_below_min_value"),
    ({"top_logprobs": 1.5}, "top_logprobs", TYPE),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"max_output_tokens": 10**30}, "max_output_tokens", "integer_above_max_value"),
    ({"max_output_tokens": "9"}, "max_output_tokens", TYPE),
    ({"max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
    ({"stream": "yes"}, "stream", TYPE),
    ({"stream": 1}, "stream", TYPE),
    ({"store": "no"}, "store", TYPE),
    ({"model": 5}, "model", TYPE),
    ({"instructions": ["be nice"]}, "instructions", TYPE),
    ({"truncation": "some"}, "truncation", VALUE),
    ({"service_tier": "gold"}, "service_tier", VALUE),
    ({"include": ["everything"]}, "include[0]", VALUE),
    ({"include": "everything"}, "include", TYPE),
    ({"include": [5]}, "include[0]", TYPE),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", VALUE),
    ({"reasoning": "high"}, "reasoning", TYPE),
    ({"stream_options": {"include_obfuscation": 1}}, "stream_options.include_obfuscation", TYPE),
    ({"conversation": {}}, "conversation.id", MISSING),
    ({"conversation": 7}, "conversation", TYPE),
    ({"prompt": {}}, "prompt.id", MISSING),
    ({"context_management": [{}]}, "context_management[0].type", MISSING),
    ({"previous_response_id": 1}, "previous_response_id", TYPE),
    # text
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type", VALUE),
    ({"text": {"format": {}}}, "text.format.type", MISSING),
    ({"text": {"format": {**SCHEMA, "schema": "s"}}}, "text.format.schema", TYPE),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", MISSING),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", MISSING),
    ({"text": {"format": {**SCHEMA, "strict": "no"}}}, "text.format.strict", TYPE),
    ({"text": {"verbosity": "loud"}}, "text.verbosity", VALUE),
    # metadata
    ({"metadata": []}, "metadata", TYPE),
    ({"metadata": {"k": 1}}, "metadata.k", TYPE),
    ({"metadata": {"k": None}}, "metadata.k", TYPE),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
    ({"metadata": {"k" * 65: "v"}}, "metadata", "string_above_max_length"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
    # extensions
    ({"top_k": "all"}, "top_k", TYPE),
    ({"min_p": 2}, "min_p", "decimal_above_max_value"),
    ({"presence_penalty": 3}, "presence_penalty", "decimal_above_max_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "decimal_below_min_value"),
    ({"seed": 2**64}, "seed", "integer_above_max_value"),
    ({"stop": [1]}, "stop[0]", TYPE),
    ({"stop": 1}, "stop", TYPE),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "integer_below_min_value"),
    ({"logit_bias": {"1": 2, "5": "lots"}}, "logit_bias.5", TYPE),
    ({"ignore_eos": "yes"}, "ignore_eos", TYPE),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", TYPE),
    ({"cache_salt": ""}, "cache_salt", "empty_string"),
    # input
    ({"input": 5}, "input", TYPE),
    ({"input": {}}, "input", TYPE),
    ({"input": ["hi"]}, "input[0]", TYPE),
    ({"input": [OK, None]}, "input[1]", TYPE),
    ({"input": [OK, {}]}, "input[1].type", MISSING),
    ({"input": [{"type": "poem"}]}, "input[0].type", VALUE),
    ({"input": [{"type": ["message"]}]}, "input[0].type", TYPE),
    ({"input": [{"type": 5}]}, "input[0].type", TYPE),
    ({"input": [{"role": "king", "content": "x"}]}, "input[0].role", VALUE),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", VALUE),
    ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role", TYPE),
    ({"input": [{"type": "message", "content": "x"}]}, "input[0].role", MISSING),
    ({"input": [{"role": "user"}]}, "input[0].content", MISSING),
    ({"input": [{"role": "user", "content": None}]}, "input[0].content", MISSING),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content", TYPE),
    ({"input": [{"role": "user", "content": {}}]}, "input[0].content", TYPE),
    ({"input": message_of("x")}, "input[0].content[0]", TYPE),
    ({"input": message_of({"text": "x"})}, "input[0].content[0].type", MISSING),
    ({"input": message_of({"type": 1})}, "input[0].content[0].type", TYPE),
    ({"input": message_of({"type": "image_url"})}, "input[0].content[0].type", VALUE),
    ({"input": message_of({"type": "output_text", "text": ""})}, "input[0].content[0].type", VALUE),
    (
        {"input": message_of({"type": "input_image"}, role="assistant")},
        "input[0].content[0].type",
        VALUE,
    ),
    (
        {"input": [OK, OK, OK, *message_of({"type": "input_text", "text": 5})]},
        "input[3].content[0].text",
        TYPE,
    ),
    ({"input": message_of({"type": "input_text"})}, "input[0].content[0].text", MISSING),
    (
        {"input": message_of({"type": "input_image", "image_url": {"url": "u"}})},
        "input[0].content[0].image_url",
        TYPE,
    ),
    (
        {"input": message_of({"type": "input_image", "image_url": "u", "detail": "fine"})},
        "input[0].content[0].detail",
        VALUE,
    ),
    (
        {"input": [OK, {"type": "function_call", "call_id": "c", "name": "f"}]},
        "input[1].arguments",
        MISSING,
    ),
    (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
        "input[0].arguments",
        TYPE,
    ),
    ({"input": [{"type": "function_call_output", "output": "o"}]}, "input[0].call_id", MISSING),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
        "input[0].output",
        TYPE,
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "text"}]}]},
        "input[0].output[0].type",
        VALUE,
    ),
    ({"input": [{"type": "reasoning", "summary": ["x"]}]}, "input[0].summary[0]", TYPE),
    ({"input": [{**OK, "status": "done"}]}, "input[0].status", VALUE),
    (
        {"input": [{"type": "web_search_call", "action": {"type": "surf"}}]},
        "input[0].action.type",
        VALUE,
    ),
    (
        {
            "input": [
                {
                    "type": "local_shell_call",
                    "call_id": "c",
                    "action": {"type": "exec", "command": ["ls"], "env": {"A": 1}},
                }
            ]
        },
        "input[0].action.env.A",
        TYPE,
    ),
    # tools
    ({"tools": {}}, "tools", TYPE),
    ({"tools": ["f"]}, "tools[0]", TYPE),
    ({"tools": [{"type": "teleport"}]}, "tools[0].type", VALUE),
    ({"tools": [{"name": "f"}]}, "tools[0].type", MISSING),
    ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name", "empty_string"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", VALUE),
    ({"tools": [{"type": "function", "name": "a\n"}]}, "tools[0].name", VALUE),
    ({"tools": [{"type": "function", "name": None}]}, "tools[0].name", MISSING),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name", MISSING),
    (
        {"tools": [{"type": "function", "name": "f", "parameters": "{}"}]},
        "tools[0].parameters",
        TYPE,
    ),
    (
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "x"}}]},
        "tools[0].format.syntax",
        VALUE,
    ),
    (
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
        "tools[0].tools[0].type",
        VALUE,
    ),
    ({"tools": [{"type": "mcp"}]}, "tools[0].server_label", MISSING),
    (
        {"tools": [{"type": "mcp", "server_label": "s", "headers": {"a": "b", "c": 1}}]},
        "tools[0].headers.c",
        TYPE,
    ),
    (
        {"tools": [{"type": "mcp", "server_label": "s", "require_approval": "maybe"}]},
        "tools[0].require_approval",
        VALUE,
    ),
    (
        {"tools": [{"type": "code_interpreter", "container": {"type": "manual"}}]},
        "tools[0].container.type",
        VALUE,
    ),
    ({"tools": [{"type": "web_search", "user_location": "Rome"}]}, "tools[0].user_location", TYPE),
    # tool_choice
    ({"tool_choice": "maybe"}, "tool_choice", VALUE),
    ({"tool_choice": 5}, "tool_choice", TYPE),
    ({"tool_choice": {}}, "tool_choice.type", MISSING),
    ({"tool_choice": {"type": "magic"}}, "tool_choice.type", VALUE),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name", MISSING),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice.name",
        MISSING,
    ),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.mode", MISSING),
    (
        {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}},
        "tool_choice.mode",
        VALUE,
    ),
    (
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": ["f"]}},
        "tool_choice.tools[0]",
        TYPE,
    ),
    (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": 1, "name": "f"}],
            }
        },
        "tool_choice.tools[0].type",
        TYPE,
    ),
    (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "tool", "name": "f"}],
            }
        },
        "tool_choice.tools[0].type",
        VALUE,
    ),
]


@pytest.mark.parametrize(
    ("parameters", "param", "code"), BAD, ids=[f"{n}-{each[1]}" for n, each in enumerate(BAD)]
)
def test_a_mistake_is_told_by_its_parameter(
    parameters: dict[str, Any], param: str, code: str
) -> None:
    error = refusal_of({"model": "m", "input": "hi", **parameters})
    assert (error.param, error.code) == (param, code), error.message


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"truncation": "some"}, "'auto' and 'disabled'"),
        ({"service_tier": "gold"}, "'flex'"),
        ({"include": ["x"]}, "'reasoning.encrypted_content'"),
        ({"tool_choice": "x"}, "'none', 'auto', 'required'"),
        ({"tools": [{"type": "x"}]}, "'code_interpreter'"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "flat form"),
        ({"input": [{"type": "x"}]}, "'function_call_output'"),
        ({"input": [{"role": "tool", "content": ""}]}, "function_call_output"),
        ({"input": message_of({"type": "text2"})}, "'input_image'"),
        ({"temperature": "hot"}, "expected a decimal, but got a string"),
        ({"temperature": 3}, "<= 2, but got 3"),
        ({"stop": 1}, "expected one of a string or array, but got an integer"),
    ],
)
def test_a_message_says_what_is_right(parameters: dict[str, Any], words: str) -> None:
    assert words in refusal_of({"model": "m", "input": "hi", **parameters}).message


HOSTILE = {
    "empty": b"",
    "blank": b" \n ",
    "not JSON": b"hello",
    "cut off": b'{"input": "h',
    "trailing": b'{"input": "h"} x',
    "an array": b"[]",
    "a string": b'"input"',
    "null": b"null",
    "not UTF-8": b'{"input": "\xff"}',
    "a surrogate in UTF-8": b'{"input": "\xed\xa0\x80"}',
    "a lone high surrogate": rb'{"input": "\ud800 and more"}',
    "a lone low surrogate": rb'{"input": "\udc00 and more"}',
    "a surrogate as key": rb'{"\ud800": 1, "input": "x"}',
    "a surrogate in a tool": rb'{"input": "x", "tools": [{"type": "function", "name": "f", "description": "\udfff!"}]}',
    "two byte order marks": b'\xef\xbb\xbf\xef\xbb\xbf{"input": "x"}',
    "NaN": b'{"input": "x", "temperature": NaN}',
    "infinity": b'{"input": "x", "temperature": Infinity}',
    "a huge float": b'{"input": "x", "temperature": 1e999}',
    "a huge integer": b'{"input": "x", "seed": ' + b"9" * 100_000 + b"}",
    "deep arrays": b'{"input":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"input":' * 100_000 + b"1" + b"}" * 100_000,
    "deep and cut off": b"[" * 1_000_000,
    "deep enough to pass the parser": b'{"input":' + b"[" * 200 + b"]" * 200 + b"}",
    "a deep schema": b'{"input": "x", "text":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}",
    "a long wrong value": b'{"input": "x", "truncation": "' + b"x" * 1_000_000 + b'"}',
    "a long wrong type": b'{"input": [{"type": "' + b"x" * 1_000_000 + b'"}]}',
    "a long role": b'{"input": [{"content": "", "role": "' + b"x" * 1_000_000 + b'"}]}',
    "a long tool choice": b'{"input": "x", "tool_choice": "' + b"x" * 1_000_000 + b'"}',
    "a long metadata key": b'{"input": "x", "metadata": {"' + b"k" * 1_000_000 + b'": "v"}}',
    "a long key of a mapping": b'{"input": "x", "logit_bias": {"' + b"k" * 1_000_000 + b'": "v"}}',
    "a raw control character": b'{"input": "\x00"}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_is_a_400(body: bytes) -> None:
    started = time.thread_time()
    error = refusal_of(body)
    assert error.status == 400
    assert len(error.param or "") < 300
    # Of this thread alone, with room for the garbage collector; what grows with the square takes minutes.
    assert time.thread_time() - started < 10


def test_text_may_hold_anything_that_utf_8_can() -> None:
    text = "\x00\x1f\u2028\ufeff\U0010ffff e\u0301"
    (message,) = request_of(input=text).input
    assert message.text == text


def test_nesting_within_reason_is_accepted() -> None:
    schema: dict[str, Any] = {}
    for _ in range(50):
        schema = {"properties": {"a": schema}}
    request = request_of(tools=[{"type": "function", "name": "f", "parameters": schema}])
    assert request.tools[0].parameters == schema


@pytest.mark.parametrize(
    "kind",
    [
        {"role": "user", "content": "hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "message",
            "id": None,
            "status": None,
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": None}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": None},
    ],
)
def test_as_many_items_as_there_may_be_are_read_in_linear_time(kind: dict[str, Any]) -> None:
    def seconds(count: int) -> float:
        started = time.thread_time()
        assert len(decode_items([kind] * count)) == count
        return time.thread_time() - started

    few = min(seconds(MAX_ITEMS // 10) for _ in range(3))
    many = min(seconds(MAX_ITEMS) for _ in range(2))
    # Ten times as much, with room for the garbage collector and a busy machine; quadratic would be a hundred times.
    assert many < max(40 * few, 1)


def test_a_string_is_a_message_of_the_user() -> None:
    assert request_of(input="hi").input == [
        items.Message(role="user", content=[content.InputText(text="hi")])
    ]


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
@pytest.mark.parametrize("kind", [{}, {"type": "message"}, {"type": None}])
def test_content_may_be_a_string(role: str, kind: dict[str, Any]) -> None:
    (message,) = decode_items([{**kind, "role": role, "content": "hi"}])
    assert isinstance(message, items.Message)
    assert message.text == "hi"
    expected = content.OutputText if role == "assistant" else content.InputText
    assert isinstance(message.content[0], expected)


@pytest.mark.parametrize("kind", ["text", "input_text"])
def test_an_assistants_words_may_come_back_under_another_name(kind: str) -> None:
    (message,) = decode_items(message_of({"type": kind, "text": "x"}, role="assistant"))
    assert message == items.Message(role="assistant", content=[content.OutputText(text="x")])


def test_a_null_is_as_good_as_nothing() -> None:
    nothing = {
        "type": "message",
        "id": None,
        "status": None,
        "phase": None,
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x", "annotations": None, "logprobs": None}],
        "created_by": None,
        "parsed": None,
    }
    assert decode_items([nothing]) == [
        items.Message(role="assistant", content=[content.OutputText(text="x")])
    ]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_nulls_in_free_form_parameters_are_kept_if_another_null_is_dropped(api: str) -> None:
    free: dict[str, Any] = {
        "kv_transfer_params": {"remote_block_ids": None, "hosts": [{"port": None}]},
        "mm_processor_kwargs": {"size": None, "crops": {"left": None}},
        "documents": [{"title": None, "text": "a"}, {"meta": {"year": None}}],
    }
    options: dict[str, Any] = {"logit_bias": {"5": None, "6": 1}}
    part = {"type": "text" if api == "chat" else "input_text", "text": "x"}
    message = {"role": "user", "content": [part]}
    request: Any
    if api == "chat":
        given = {"model": "m", "messages": [message], **options, **free}
        request = decode_chat_request(json.dumps(given).encode())
    else:
        given = {"model": "m", "input": [message], **options, **free}
        request = decode_response_request(json.dumps(given).encode())
    for name, value in free.items():
        assert getattr(request, name) == value


def test_a_null_in_free_form_json_is_kept() -> None:
    (call,) = decode_items(
        [{"type": "tool_search_call", "id": None, "arguments": {"a": None, "b": [{"c": None}]}}]
    )
    assert isinstance(call, items.ToolSearchCall)
    assert call.arguments == {"a": None, "b": [{"c": None}]}
    (tool,) = tools.decode_tools(
        [
            {
                "type": "function",
                "name": "f",
                "defer_loading": None,
                "parameters": {"properties": {"x": {"default": None, "enum": [None, 1]}}},
            }
        ]
    )
    assert isinstance(tool, tools.FunctionTool)
    assert tool.parameters == {"properties": {"x": {"default": None, "enum": [None, 1]}}}


@pytest.mark.parametrize(
    "empty",
    [
        {},
        {"content": None, "encrypted_content": None, "status": None},
        {"summary": None},
    ],
)
def test_reasoning_without_text_leaves_its_fields_out(empty: dict[str, Any]) -> None:
    decoded = decode_items([{"type": "reasoning", "id": "rs_1", "summary": [], **empty}])
    assert json.loads(encode(decoded)) == [{"type": "reasoning", "id": "rs_1", "summary": []}]


@pytest.mark.parametrize(
    "reference",
    [{"type": "item_reference", "id": "x"}, {"type": None, "id": "x"}, {"id": "x"}],
)
def test_a_reference_may_lack_its_type(reference: dict[str, Any]) -> None:
    assert decode_items([reference]) == [items.ItemReference(id="x")]


def test_decoding_changes_nothing_that_it_is_given() -> None:
    raw = {"model": None, "input": [{"role": "user", "content": "hi", "id": None}], "x": 1}
    before = json.dumps(raw)
    convert_response_request(raw)
    assert json.dumps(raw) == before


def test_codex_is_understood() -> None:
    request = request_of(
        instructions="You are Codex.",
        input=[
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "x"}],
            },
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "e"},
            {
                "type": "function_call",
                "name": "shell",
                "arguments": "{}",
                "call_id": "call_1",
                "namespace": "ns",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "done"},
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "call_2",
                "name": "apply_patch",
                "input": "*** Begin",
            },
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        ],
        tools=[
            {
                "type": "function",
                "name": "shell",
                "description": "",
                "strict": False,
                "parameters": {"type": "object", "properties": {}},
            },
            {
                "type": "namespace",
                "name": "mcp__files__",
                "description": "Files",
                "tools": [{"type": "function", "name": "read", "parameters": {}}],
            },
            {"type": "web_search", "external_web_access": False},
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
            },
            {"type": "local_shell"},
        ],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "summary": "auto"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"x-codex": None},
        text={"verbosity": "low"},
    )
    assert request.unknown == ["client_metadata"]
    assert request.client_metadata == {"x-codex": None}
    assert request.tools[3].format == tools.CustomGrammarFormat(
        syntax="lark", definition="start: /x/"
    )
    assert tools.type_of(request.tools[2]) == "web_search"
    assert not request.tools[2].external_web_access


def test_unknown_parameters_are_accepted_and_named() -> None:
    request = request_of(zeta=1, alpha={"deep": [1]}, temperature=None)
    assert request.unknown == ["alpha", "zeta"]
    assert b"alpha" not in encode(request)


def test_nulls_are_defaults() -> None:
    names = convert_response_request({"input": "x"}).__struct_fields__
    everything: dict[str, Any] = dict.fromkeys(names, None)
    assert convert_response_request({**everything, "input": "x"}) == convert_response_request(
        {"input": "x"}
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"conversation": {"id": "conv_1"}},
        {"prompt": {"id": "pmpt_1"}},
    ],
)
def test_input_may_be_missing_where_something_else_stands_for_it(
    parameters: dict[str, Any],
) -> None:
    assert decode_response_request(encode({"model": "m", **parameters})).input is None


@pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "input": None}, {}])
def test_input_may_not_be_missing_otherwise(body: dict[str, Any]) -> None:
    error = refusal_of(body)
    assert (error.param, error.code) == ("input", MISSING)
    assert decode_response_request(encode(body), require_input=False).input is None


def test_the_conversation_has_one_id_in_either_form() -> None:
    for sent in ("conv_1", {"id": "conv_1"}):
        assert request_of(conversation=sent).conversation_id == "conv_1"
    assert request_of().conversation_id is None


def test_requests_to_conversations() -> None:
    assert decode_conversation_request(b"").items is None
    request = decode_conversation_request(encode({"items": [OK], "metadata": {"a": "b"}}))
    assert request.metadata == {"a": "b"}
    assert request.items is not None
    assert len(request.items) == 1
    for body, param in (
        (b"{}", "items"),
        (b'{"items": null}', "items"),
        (b'{"items": "x"}', "items"),
        (b'{"items": [{"type": "x"}]}', "items[0].type"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            decode_conversation_request(body, require="items")
        assert caught.value.param == param


def test_ids_are_given_once() -> None:
    numbers = iter(range(9))

    def new_id(prefix: str) -> str:
        return f"{prefix}{next(numbers)}"

    for cls in items.ITEMS.values():
        if cls is not items.ItemReference:
            assert items.ID_PREFIXES[cls].endswith("_"), cls
    (sent,) = decode_items([{"role": "user", "content": "hi"}])
    (named,) = with_ids([sent], new_id)
    assert (sent.id, named.id) == ("", "msg_0")
    assert with_ids([named], new_id)[0] is named
    assert len(set(items.ID_PREFIXES.values())) == len(items.ID_PREFIXES)


def test_the_other_apis_parameter_is_named() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(InvalidRequest, match="Here it is 'input', not 'messages'"):
        decode_response_request(json.dumps({"model": "m", "messages": messages}).encode())
    with pytest.raises(InvalidRequest, match="Here it is 'messages', not 'input'"):
        decode_chat_request(json.dumps({"model": "m", "input": "hi"}).encode())


NAMED = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"context_management": [{}]},
            "Missing required parameter: 'context_management[0].type'. It is 'compaction'.",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": []}},
            "Missing required parameter: 'tool_choice.mode'. It is one of: 'auto' and 'required'.",
        ),
        (
            {"tools": [{**NAMED, "name": "a b"}]},
            "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_.-]+$'.",
        ),
        (
            {"tools": [{**NAMED, "name": ""}]},
            "Invalid 'tools[0].name': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        ),
        (
            {"tools": [{**NAMED, "name": "f" * 129}]},
            "Invalid 'tools[0].name': string too long. Expected a string with maximum length 128, but got a string with "
            "length 129 instead.",
        ),
        (
            {"metadata": {"k": "v" * 513}},
            "Invalid 'metadata.k': string too long. Expected a string with maximum length 512, but got a string with length "
            "513 instead.",
        ),
        (
            {"metadata": {str(n): "v" for n in range(17)}},
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an object with "
            "17 properties instead.",
        ),
    ],
)
def test_errors_have_openais_words(body: dict[str, Any], message: str) -> None:
    assert refusal_of({"model": "m", "input": "x", **body}).message == message


@pytest.mark.parametrize(
    "text", [r"\ud83d", r"\ud83dx", r"\ud83d and much more text", r"a \udc00 and much more text"]
)
def test_half_a_surrogate_pair_is_named(text: str) -> None:
    error = refusal_of(f'{{"model": "m", "input": "{text}"}}'.encode())
    assert error.code == "invalid_json"
    assert "half of a surrogate pair" in error.message


def test_what_is_truncated_has_no_half_of_a_pair() -> None:
    for body in (b'{"model": "m", "inp', rb'{"input": "\ud83d\ude00 is whole", "model": "m'):
        assert "surrogate" not in refusal_of(body).message


@pytest.mark.parametrize("name", ["safety_identifier", "prompt_cache_key"])
def test_identifiers_have_64_characters_at_most_in_both_apis(name: str) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert getattr(decode_chat_request(encode({**chat, name: "x" * 64})), name) == "x" * 64
    with pytest.raises(InvalidRequest) as caught:
        decode_chat_request(encode({**chat, name: "x" * 65}))
    assert (caught.value.param, caught.value.code) == (name, "string_above_max_length")
    assert refusal_of({"model": "m", "input": "x", name: "x" * 65}).code == caught.value.code
