"""Calls and their outputs, as strict upstreams require them: together, and each call with an output."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.protocols import Turn
from gateway.wire.item_decoding import decode_items
from gateway_openai.config import OpenAIConfig
from gateway_openai.history import NO_RESULT
from gateway_openai.input_items import input_items
from gateway_openai.messages import chat_messages

KINDS = st.sampled_from(["user", "developer", "assistant", "reasoning", "call", "custom", "output"])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Items in any order, each with a text of its own; an output comes after its call, which may have none."""
    items: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []
    for number, kind in enumerate(draw(st.lists(KINDS, min_size=1, max_size=14))):
        text, call_id = f"<{number}>", f"c{draw(st.integers(0, 3))}"
        match kind:
            case "call":
                arguments = json.dumps({"a": text})
                call = {"type": "function_call", "name": "f", "arguments": arguments}
                items.append({**call, "call_id": call_id})
                open_calls.append((call_id, "function_call_output"))
            case "custom":
                items.append(
                    {"type": "custom_tool_call", "call_id": call_id, "name": "n", "input": text}
                )
                open_calls.append((call_id, "custom_tool_call_output"))
            case "output":
                if open_calls:
                    at = draw(st.integers(0, len(open_calls) - 1))
                    call_id, output_kind = open_calls.pop(at)
                    items.append({"type": output_kind, "call_id": call_id, "output": text})
            case "reasoning":
                content = [{"type": "text", "text": text}]
                items.append({"type": "reasoning", "summary": [], "content": content})
            case _:
                items.append({"role": kind, "content": text})
    return items


def markers(value: Any) -> Counter[str]:
    written = json.dumps(value)
    return Counter({f"<{n}>": count for n in range(20) if (count := written.count(f"<{n}>"))})


@given(histories())
def test_chat_messages_are_what_strict_upstreams_take(items: list[dict[str, Any]]) -> None:
    config = msgspec.convert({"base_url": "http://x"}, OpenAIConfig)
    messages = chat_messages(Turn(items=decode_items(items)), config)
    assert markers(messages) == markers(items), "each text once"
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_ids.remove(message["tool_call_id"])
        else:
            assert not open_ids, "another message before the results of a call"
        open_ids += [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_ids
    said = [m["content"] for m in messages if m["role"] in {"user", "system"}]
    sent = [item["content"] for item in items if item.get("role") in {"user", "developer"}]
    assert said == sent, "in their order"


@given(histories())
def test_input_items_have_an_output_for_each_call(items: list[dict[str, Any]]) -> None:
    config = msgspec.convert({"base_url": "http://x", "api": "responses"}, OpenAIConfig)
    sent = input_items(Turn(items=decode_items(items)), config)
    assert markers(sent) == markers(items)
    calls = Counter(each["call_id"] for each in sent if each["type"].endswith("_call"))
    answers = Counter(each["call_id"] for each in sent if each["type"].endswith("_call_output"))
    assert calls == answers
    given = sum(1 for item in items if item.get("type", "").endswith("_output"))
    assert sum(answers.values()) - given == sum(
        1 for each in sent if each.get("output") == NO_RESULT
    )


def test_a_message_between_a_call_and_its_result_follows_the_result() -> None:
    """As of a user who writes while a tool runs."""
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "faster"},
        {"type": "function_call_output", "call_id": "b", "output": "B"},
    ]
    config = msgspec.convert({"base_url": "http://x"}, OpenAIConfig)
    messages = chat_messages(Turn(items=decode_items(items)), config)
    assert [(m["role"], m["content"]) for m in messages] == [
        ("user", "go"),
        ("assistant", None),
        ("tool", "B"),
        ("tool", NO_RESULT),
        ("user", "faster"),
    ]
