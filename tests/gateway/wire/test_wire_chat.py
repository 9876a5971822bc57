"""Chat Completions and Completions on the wire, against the official SDK's types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import completion_create_params
from openai.types.chat import ChatCompletion as SdkChat
from openai.types.chat import completion_create_params as chat_params
from openai.types.completion import Completion as SdkCompletion

from gateway.base.errors import InvalidRequest
from gateway.wire import chat, completions
from gateway.wire.chat import ChatRequest, decode_chat_request
from gateway.wire.chat_messages import (
    AssistantMessage,
    CalledCustom,
    CalledFunction,
    ChatCustomToolCall,
    FunctionToolCall,
)
from gateway.wire.common import encode
from gateway.wire.completions import CompletionRequest, decode_completion_request
from gateway.wire.content import Logprob, TopLogprob
from gateway.wire.parameter_table import CHAT, COMPLETIONS
from gateway.wire.structured import JsonSchemaResponse
from gateway.wire.tools import CustomGrammarFormat, CustomTool, FunctionTool

USER: dict[str, Any] = {"role": "user", "content": "hello"}
FUNCTION: dict[str, Any] = {"name": "f", "description": "d", "parameters": {"type": "object"}}


def request(**fields: Any) -> ChatRequest:
    return decode_chat_request(json.dumps({"messages": [USER], **fields}).encode())


def test_every_parameter_of_the_sdk_is_known() -> None:
    for base, known in (
        (chat_params.CompletionCreateParamsBase, CHAT.known),
        (chat_params.CompletionCreateParamsStreaming, CHAT.known),
        (completion_create_params.CompletionCreateParamsBase, COMPLETIONS.known),
        (completion_create_params.CompletionCreateParamsStreaming, COMPLETIONS.known),
    ):
        assert set(base.__annotations__) - known <= CHAT.ignored


def test_nulls_count_as_left_out() -> None:
    names = set(get_type_hints(ChatRequest)) - {"messages"}
    assert request(**dict.fromkeys(names), functions=None, function_call=None) == request()
    assert not request().legacy


def test_what_nobody_knows_is_remembered() -> None:
    assert request(frobnicate=1, seed=2).unknown == ["frobnicate"]
    body = b'{"prompt": "a", "x": 1, "prompts": []}'
    decoded = decode_completion_request(body)
    assert decoded.prompts == ["a"]
    assert decoded.unknown == ["prompts", "x"]


ANSWER = chat.ChatCompletion(
    id="chatcmpl-1",
    created=1,
    model="m",
    choices=[
        chat.Choice(
            index=0,
            message=chat.AnswerMessage(
                content=None,
                reasoning="r",
                reasoning_content="r",
                tool_calls=[
                    chat.MessageToolCall(id="a", function=CalledFunction(name="f", arguments="{}")),
                    chat.MessageToolCall(
                        id="b", type="custom", custom=CalledCustom(name="c", input="x")
                    ),
                ],
            ),
            logprobs=chat.ChoiceLogprobs(
                content=[
                    Logprob(
                        token="a",
                        bytes=[97],
                        logprob=-1.0,
                        top_logprobs=[TopLogprob(token="a", bytes=[97], logprob=-1.0)],
                    )
                ]
            ),
            finish_reason="tool_calls",
        )
    ],
    usage=chat.CompletionUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3),
)


def test_the_answer_is_what_the_sdk_reads_and_its_dump_is_read_back() -> None:
    read = SdkChat.model_validate_json(encode(ANSWER), strict=True)
    message = read.choices[0].message
    dumped = message.model_dump()
    [decoded] = request(messages=[dumped]).messages
    assert isinstance(decoded, AssistantMessage)
    assert decoded.reasoning == decoded.reasoning_content == "r"
    assert decoded.tool_calls is not None
    assert [call.id for call in decoded.tool_calls] == ["a", "b"]
    legacy = chat.AnswerMessage(function_call=CalledFunction(name="f", arguments="{}"))
    [decoded] = request(messages=[msgspec.to_builtins(legacy)]).messages
    assert isinstance(decoded, AssistantMessage)
    assert decoded.function_call == CalledFunction(name="f", arguments="{}")


def test_the_completion_is_what_the_sdk_reads() -> None:
    scored = completions.CompletionLogprobs(
        text_offset=[0], token_logprobs=[-1.0], tokens=["a"], top_logprobs=[{"a": -1.0}]
    )
    choice = completions.CompletionChoice(
        index=0, text="a", logprobs=scored, finish_reason="length"
    )
    made = completions.Completion(
        id="cmpl-1", created=1, model="m", choices=[choice], usage=ANSWER.usage
    )
    assert SdkCompletion.model_validate_json(encode(made), strict=True).choices[0].text == "a"


def test_tools_become_those_of_responses() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    tools = [
        {"type": "function", "function": {**FUNCTION, "strict": True}},
        {"type": "custom", "custom": {"name": "c", "format": grammar}},
    ]
    decoded = request(tools=tools).tools
    assert decoded == [
        FunctionTool(name="f", description="d", parameters={"type": "object"}, strict=True),
        CustomTool(name="c", format=CustomGrammarFormat(syntax="lark", definition="start: x")),
    ]
    legacy = request(functions=[FUNCTION], function_call={"name": "f"})
    assert legacy.legacy
    assert legacy.tools == [FunctionTool(name="f", description="d", parameters={"type": "object"})]


@pytest.mark.parametrize("untyped", [{}, {"type": None}, {"type": ""}])
def test_a_call_without_its_type_is_what_it_contains(untyped: dict[str, Any]) -> None:
    calls = [
        {"id": "1", **untyped, "function": {"name": "f", "arguments": "{}"}},
        {"id": "2", **untyped, "custom": {"name": "c", "input": "x"}},
    ]
    message = request(messages=[{"role": "assistant", "tool_calls": calls}]).messages[0]
    assert isinstance(message, AssistantMessage)
    kinds = [type(call) for call in message.tool_calls or ()]
    assert kinds == [FunctionToolCall, ChatCustomToolCall]


def test_a_schemas_own_nulls_are_kept() -> None:
    schema = {"type": "object", "properties": {"a": {"default": None, "enum": [None, 1]}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": None, "schema": schema}}
    decoded = request(
        response_format=wanted,
        tools=[
            {"type": "function", "function": {"name": "f", "strict": None, "parameters": schema}}
        ],
    )
    assert isinstance(decoded.response_format, JsonSchemaResponse)
    assert decoded.response_format.json_schema.schema == schema
    assert decoded.tools == [FunctionTool(name="f", parameters=schema)]
    body = {"messages": [{**USER, "name": None}], "guided_json": schema, "n": None}
    assert decode_chat_request(json.dumps(body).encode()).guided_json == schema


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "id", "image_url", "url"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip
FIELDS = sorted(CHAT.known | COMPLETIONS.known - {"prompt_embeds"})


def complaint(decode: Callable[[bytes], object], body: dict[str, Any]) -> InvalidRequest | None:
    try:
        decode(json.dumps(body).encode())
    except InvalidRequest as error:
        return error
    return None


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), JSON)
def test_any_json_is_read_or_refused_with_a_parameter(fields: dict[str, Any], said: Any) -> None:
    for refused in (
        complaint(decode_chat_request, {**fields, "messages": [USER, said]}),
        complaint(decode_chat_request, {"messages": [USER], **fields}),
        complaint(decode_completion_request, {"prompt": said, **fields}),
    ):
        if refused is not None:
            assert refused.param
            assert refused.message


def test_a_list_of_prompts_is_told_from_a_prompt_of_tokens() -> None:
    def prompts(value: Any) -> list[Any]:
        return decode_completion_request(json.dumps({"prompt": value}).encode()).prompts

    assert prompts("a") == ["a"]
    assert prompts([1, 2]) == [[1, 2]]
    assert prompts(["a", "b"]) == ["a", "b"]
    assert prompts([[1], [2, 3]]) == [[1], [2, 3]]
    assert CompletionRequest().prompts == []


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"reasoning": {}}, (None, None, None)),
        ({"reasoning": {"effort": "high"}}, ("high", None, None)),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "high"}, ("high", None, None)),
        ({"reasoning": {"max_tokens": 9, "enabled": True}}, (None, 9, None)),
        ({"reasoning": {"enabled": True}}, ("medium", None, None)),
        ({"reasoning": {"enabled": True}, "reasoning_effort": "low"}, ("low", None, None)),
        ({"reasoning": {"enabled": False}}, ("none", None, None)),
        ({"reasoning": {"enabled": False, "effort": "none"}}, ("none", None, None)),
        ({"reasoning": {"exclude": True}}, (None, None, False)),
        ({"reasoning": {"exclude": False}, "include_reasoning": False}, (None, None, False)),
    ],
)
def test_the_reasoning_object_sets_the_parameters_of_its_members(
    sent: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = request(**sent)
    taken = (found.reasoning_effort, found.thinking_token_budget, found.include_reasoning)
    assert taken == expected
    assert found.unknown == []


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": 5}, "thinking_token_budget": 6}, "reasoning.max_tokens"),
        ({"reasoning": {"exclude": True}, "include_reasoning": True}, "reasoning.exclude"),
        ({"reasoning": {"enabled": False}, "reasoning_effort": "low"}, "reasoning.enabled"),
        ({"reasoning": {"enabled": False, "effort": "low"}}, "reasoning.enabled"),
        ({"reasoning": {"enabled": False, "max_tokens": 5}}, "reasoning.enabled"),
        ({"reasoning": {"effort": "lots"}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": 0}}, "reasoning.max_tokens"),
        ({"reasoning": True}, "reasoning"),
    ],
)
def test_a_reasoning_object_that_contradicts_is_refused(sent: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request(**sent)
    assert caught.value.param == param


CALLED = {"id": "1", "type": "function"}
USUAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "parts of Responses": (
        {"role": "user", "content": [
            {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x", "detail": "low"},
            {"type": "input_file", "filename": "a.txt", "file_data": "data:y"}]},
        {"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.txt", "file_data": "data:y"}}]}),
    "an address as text": ({"role": "user", "content": [{"type": "image_url", "image_url": "data:x"}]}, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}),
    "an earlier answer of Responses": ({"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}),
    "a system's part of Responses": ({"role": "system", "content": [{"type": "input_text", "text": "a"}]}, {"role": "system", "content": [{"type": "text", "text": "a"}]}),
    "thinking": ({"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "s"}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning_content": "h"}),
    "Mistral's thinking": ({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning_content": "hm"}),
    "LangChain's reasoning": ({"role": "assistant", "content": [{"type": "reasoning", "reasoning": "h"}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning_content": "h"}),
    "reasoning twice": ({"role": "assistant", "reasoning": "g", "content": [{"type": "reasoning", "text": "h"}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning": "g"}),
    "hidden reasoning": ({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}),
    "no arguments": ({"role": "assistant", "tool_calls": [{**CALLED, "function": {"name": "f"}}]}, {"role": "assistant", "tool_calls": [{**CALLED, "function": {"name": "f", "arguments": ""}}]}),
    "an older call without arguments": ({"role": "assistant", "function_call": {"name": "f"}}, {"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
    "null arguments": ({"role": "assistant", "tool_calls": [{**CALLED, "function": {"name": "f", "arguments": None}}]}, {"role": "assistant", "tool_calls": [{**CALLED, "function": {"name": "f", "arguments": ""}}]}),
    "nothing returned": ({"role": "tool", "tool_call_id": "1", "content": None}, {"role": "tool", "tool_call_id": "1", "content": ""}),
    "a result's part": ({"role": "tool", "tool_call_id": "1", "content": [{"type": "output_text", "text": "a"}]}, {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "usual"), USUAL.values(), ids=USUAL)
def test_messages_in_shapes_of_other_servers_are_read(
    sent: dict[str, Any], usual: dict[str, Any]
) -> None:
    assert request(messages=[sent]).messages == request(messages=[usual]).messages
    with pytest.raises(InvalidRequest):
        decode_chat_request(json.dumps({"model": "m", "messages": [sent]}).encode(), strict=True)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown part": ({"role": "user", "content": [{"type": "hologram"}]}, "messages[0].content[0].type"),
    "no address": ({"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "image_url", "image_url": 5}]}, "messages[0].content[1].image_url"),
    "nothing asked": ({"role": "user", "content": None}, "messages[0].content"),
    "an object of arguments": ({"role": "assistant", "tool_calls": [{**CALLED, "function": {"name": "f", "arguments": {}}}]}, "messages[0].tool_calls[0].function.arguments"),
    "reasoning of a user": ({"role": "user", "content": [{"type": "thinking", "thinking": "h"}]}, "messages[0].content[0].type"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "param"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_usual_shape_is_refused_by_its_place(sent: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request(messages=[sent])
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("sent", "effort", "reported"),
    [
        ({"enable_thinking": False}, "none", False),
        ({"enable_thinking": True}, "medium", False),
        ({"enable_thinking": True, "reasoning_effort": "low"}, "low", False),
        ({"enable_thinking": False, "reasoning_effort": "none"}, "none", False),
        ({"enable_thinking": False, "reasoning_effort": "low"}, "low", True),
        ({"enable_thinking": False, "reasoning": {"effort": "high"}}, "high", True),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, None, True),
        ({"enable_thinking": "no"}, None, True),
        ({"enable_thinking": None}, None, True),
    ],
)
def test_the_switch_of_qwens_api_turns_reasoning_on_and_off(
    sent: dict[str, Any], effort: str | None, reported: bool
) -> None:
    """It changes nothing that another parameter says, and is reported then."""
    read = request(**sent)
    assert read.reasoning_effort == effort
    assert ("enable_thinking" in read.unknown) == reported
    with pytest.raises(InvalidRequest, match="enable_thinking"):
        decode_chat_request(
            json.dumps({"model": "m", "messages": [USER], "enable_thinking": False}).encode(),
            strict=True,
        )
