from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.answers.chat.items import items_of
from gateway.base.errors import Unsupported
from gateway.wire import items
from gateway.wire.chat_messages import decode_messages
from gateway.wire.content import InputAudio, InputFile, InputImage, InputText


def read(*messages: dict[str, Any]) -> tuple[list[items.Item], list[int]]:
    found = items_of(decode_messages(list(messages)))
    return found.items, found.origins


def call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def test_an_assistants_message_is_reasoning_then_text_then_calls() -> None:
    found, origins = read(
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [call("a", "f"), call("b", "g", '{"x": 1}')],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
    )
    assert [type(item).__name__ for item in found] == [
        "Message", "Reasoning", "Message", "FunctionCall", "FunctionCall", "FunctionCallOutput",
        "FunctionCallOutput",
    ]  # fmt: skip
    assert origins == [0, 1, 1, 1, 1, 2, 3]
    first, second = found[-2:]
    assert isinstance(first, items.FunctionCallOutput)
    assert isinstance(second, items.FunctionCallOutput)
    assert (first.call_id, first.output) == ("a", "one")
    assert (second.call_id, second.output) == ("b", [InputText(text="two")])


def test_a_message_that_says_nothing_leaves_no_message() -> None:
    found, _ = read({"role": "assistant", "content": "", "tool_calls": [call("a", "f")]})
    assert [type(item) for item in found] == [items.FunctionCall]
    found, _ = read({"role": "assistant", "content": None})
    assert [type(item) for item in found] == [items.Message], "the turn is still the assistant's"


def test_calls_of_a_message_after_another_one_begin_with_an_empty_message() -> None:
    """Otherwise they would be calls of the message with the text."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = {"role": "assistant", "content": "I look."}
    made = items_of(decode_messages([said, calling])).items
    assert [type(each) for each in made] == [items.Message, items.Message, items.FunctionCall]
    assert isinstance(made[1], items.Message)
    assert made[1].content == []
    for before in ({"role": "user", "content": "hi"}, calling):
        made = items_of(decode_messages([before, calling])).items
        assert items.Message not in map(type, made[1:])


def test_late_system_and_developer_messages_stay_where_they_are() -> None:
    found, _ = read(
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "developer", "content": [{"type": "text", "text": "c"}]},
        {"role": "system", "content": "d"},
    )
    said = [(item.role, item.text) for item in found if isinstance(item, items.Message)]
    assert said == [("system", "a"), ("user", "b"), ("developer", "c"), ("system", "d")]


def test_parts_of_every_kind() -> None:
    [message], _ = read(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "file", "file": {"file_data": "AA==", "filename": "a.pdf"}},
            ],
        }
    )
    assert isinstance(message, items.Message)
    text, image, audio, file = message.content
    assert isinstance(text, InputText)
    assert isinstance(image, InputImage)
    assert (image.image_url, image.detail) == ("data:x", "low")
    assert isinstance(audio, InputAudio)
    assert audio.input_audio.format == "wav"
    assert isinstance(file, InputFile)
    assert (file.filename, file.file_data) == ("a.pdf", "AA==")


def test_the_result_of_a_custom_call_is_a_custom_one() -> None:
    found, _ = read(
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "n", "input": "x"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "done"},
    )
    assert [type(item) for item in found] == [items.CustomToolCall, items.CustomToolCallOutput]


def test_legacy_results_find_their_calls_by_name_in_order() -> None:
    def legacy(name: str) -> dict[str, Any]:
        return {"role": "assistant", "function_call": {"name": name, "arguments": "{}"}}

    def result(name: str, text: str) -> dict[str, Any]:
        return {"role": "function", "name": name, "content": text}

    found, _ = read(legacy("f"), result("f", "1"), legacy("f"), result("f", "2"), result("g", "3"))
    pairs = {
        item.call_id: item.output for item in found if isinstance(item, items.FunctionCallOutput)
    }
    called = [item.call_id for item in found if isinstance(item, items.FunctionCall)]
    assert len(set(called)) == 2
    assert [pairs[call_id] for call_id in called] == ["1", "2"]
    assert pairs["g"] == "3", "a result without a call keeps what it says"


def test_a_refusal_is_kept_in_either_form() -> None:
    for message in (
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ):
        [item], _ = read(message)
        assert "no" in json.dumps(
            [part.refusal for part in item.content]  # type: ignore[union-attr]
        )


def test_spoken_answers_are_not_kept() -> None:
    with pytest.raises(Unsupported) as refused:
        read({"role": "user", "content": "a"}, {"role": "assistant", "audio": {"id": "x"}})
    assert refused.value.param == "messages[1].audio"
