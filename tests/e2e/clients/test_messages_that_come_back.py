"""The messages of a chat as libraries keep them and send them back, or make them up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.clients.answers import said

CHAT_WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}
ASKED = {"role": "user", "content": "weather?"}


@pytest.mark.parametrize(
    "said_before",
    [
        {"content": None},
        {"content": ""},
        {"content": []},
        {},
        {"content": [{"type": "text", "text": ""}]},
        {"content": None, "refusal": None, "audio": None, "function_call": None, "annotations": []},
        {"content": None, "reasoning_content": None, "reasoning": None, "name": None},
        {"content": "", "reasoning_content": "Hm."},
        {"content": None, "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
        {"content": None, "provider_specific_fields": {"refusal": None}, "images": []},
    ],
    ids=json.dumps,
)
def test_an_assistants_calls_come_back_without_content(
    chat: Any, said_before: dict[str, Any]
) -> None:
    message = {"role": "assistant", **said_before, "tool_calls": [CALL]}
    body = {"messages": [ASKED, message, RESULT], "tools": [CHAT_WEATHER]}
    assert chat(body)["content"] == "It is 18 degrees in Paris."


@pytest.mark.parametrize(
    "call",
    [
        {k: v for k, v in CALL.items() if k != "type"},
        {**CALL, "type": None},
        {**CALL, "index": 0},
        {**CALL, "function": {**CALL["function"], "arguments": ""}},  # type: ignore[dict-item]
        {**CALL, "function": {**CALL["function"], "parsed_arguments": {}}},  # type: ignore[dict-item]
        {**CALL, "extra_content": {"google": {"thought_signature": "x"}}},
    ],
    ids=json.dumps,
)
def test_a_call_comes_back_as_libraries_keep_it(chat: Any, call: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"messages": [ASKED, message, RESULT], "tools": [CHAT_WEATHER]}
    assert chat(body)["content"] == "It is 18 degrees in Paris."


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "18 degrees"}]},
        {"content": [{"type": "text", "text": "Sunny,"}, {"type": "text", "text": "18 degrees"}]},
        {"content": "18 degrees", "name": "get_weather"},
        {"content": "18 degrees", "name": None, "is_error": False},
        {
            "content": [
                {"type": "text", "text": "18 degrees", "cache_control": {"type": "ephemeral"}}
            ]
        },
    ],
    ids=json.dumps,
)
def test_a_tools_result_may_be_a_list(chat: Any, result: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    body = {"messages": [ASKED, message, {**RESULT, **result}], "tools": [CHAT_WEATHER]}
    assert chat(body)["content"] == "It is 18 degrees in Paris."


@pytest.mark.parametrize("content", ["", []], ids=json.dumps)
def test_a_tool_may_give_nothing(chat: Any, content: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    body = {"messages": [ASKED, message, {**RESULT, "content": content}], "tools": [CHAT_WEATHER]}
    chat(body)


def test_calls_that_were_made_before_need_no_tools_now(chat: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    for more in ({}, {"tools": None}, {"tools": []}):
        body = {"messages": [ASKED, message, RESULT], **more}
        assert chat(body)["content"] == "It is 18 degrees in Paris."


def test_systems_and_developers_may_come_anywhere(chat: Any) -> None:
    messages = [
        {"role": "system", "content": "Be nice."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "hi", "name": "ada"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "system", "content": ""},
        {"role": "developer", "content": "Now, be quick."},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    ]
    assert chat({"messages": messages})["content"] == "hello"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "think first"}],
        [{"role": "developer", "content": "think first"}],
        [{"role": "user", "content": "x"}, {"role": "user", "content": "think first"}],
        [{"role": "assistant", "content": "Hello?"}, {"role": "user", "content": "think first"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "think first"}],
        [{"role": "user", "content": ""}, {"role": "user", "content": "think first"}],
    ],
    ids=json.dumps,
)
def test_turns_need_not_alternate(respond: Any, chat: Any, messages: list[Any]) -> None:
    assert chat({"messages": messages})["content"] == "Done thinking."
    assert said(respond({"input": messages})) == "Done thinking."
