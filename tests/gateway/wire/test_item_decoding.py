"""Items of requests are decoded the same by the fast path and the general one, and in the forms that clients send."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest
from gateway.wire import items
from gateway.wire.content import InputImage, InputText, OutputText
from gateway.wire.field_errors import MAX_ITEMS
from gateway.wire.item_decoding import decode_item, decode_items

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
TEXT = {"type": "input_text", "text": "a"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "a", "type": "message", "id": "msg_1", "status": None},
    {"role": "user", "content": [TEXT, {"type": "input_image", "image_url": "u"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": None}]},
    {"role": "assistant", "content": [TEXT, {"type": "refusal", "refusal": "no"}]},
    {"role": "system", "content": [{"type": "text", "text": "a"}], "phase": None},
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "a"},
    {"type": "function_call_output", "name": "f", "output": [TEXT]},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "a"},
    {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "a"}]},
    {"type": "reasoning", "summary": "a", "encrypted_content": None, "content": "b"},
    {"type": "item_reference", "id": "msg_1"},
    {"id": "msg_1"},
    {"type": "web_search_call", "action": {"type": "search", "query": "q"}, "status": "completed"},
]
JUNK = st.sampled_from(
    [None, 5, True, "", "a", "text", "output_text", "input_text", "message", "tool", [], {}]
) | st.sampled_from(
    [["a"], [TEXT], [{"type": "text", "text": "a"}], {"type": "text"}, [None], [[]]]
)
NAMES = st.sampled_from(
    ["type", "role", "content", "id", "status", "summary", "output", "call_id", "name", "text"]
) | st.sampled_from(["images", "attachments", "file_ids", "phase", "annotations", "other"])


@st.composite
def changed_items(draw: st.DrawFn) -> Any:
    """Items with a few members removed, added or replaced."""
    item = copy.deepcopy(draw(st.sampled_from(ITEMS)))
    for _ in range(draw(st.integers(0, 3))):
        places: list[Any] = [item]
        for each in places:
            inner = each.values() if isinstance(each, dict) else each
            places += [below for below in inner if isinstance(below, dict | list)]
        place = draw(st.sampled_from(places))
        keys: list[Any] = [*(place if isinstance(place, dict) else range(len(place)))]
        if keys and draw(st.booleans()):
            key = draw(st.sampled_from(keys))
            if draw(st.booleans()):
                del place[key]
            else:
                place[key] = copy.deepcopy(draw(JUNK))
        elif isinstance(place, dict):
            place[draw(NAMES)] = copy.deepcopy(draw(JUNK))
        else:
            place.append(copy.deepcopy(draw(JUNK)))
    return item


def outcome(decode: Any, *given: Any) -> Any:
    try:
        return decode(*given)
    except InvalidRequest as error:
        return (error.at, error.code, error.message)


@given(changed_items())
def test_an_item_in_a_list_is_decoded_as_it_is_alone(item: Any) -> None:
    before = copy.deepcopy(item)
    alone = outcome(decode_item, item, ("messages", 1))
    together = outcome(decode_items, [{"role": "user", "content": "a"}, item], ("messages",))
    assert (together[1] if isinstance(together, list) else together) == alone
    assert item == before
    if isinstance(alone, tuple):
        assert alone[0][:2] == ("messages", 1)
        assert len(alone[2]) < 1000


def test_a_string_is_a_message_and_other_values_are_refused() -> None:
    assert decode_items("") == [items.Message(role="user", content=[InputText(text="")])]
    assert decode_items([]) == []
    for raw, kind in ((5, "an integer"), ({}, "an object"), (None, "null")):
        with pytest.raises(InvalidRequest, match=f"string or array of input items.*{kind}"):
            decode_items(raw)


@pytest.mark.parametrize(
    "sent",
    [
        [{"role": "user", "content": "a"}] * (MAX_ITEMS + 1),
        [{"role": "user", "content": [TEXT] * (MAX_ITEMS + 1)}],
        [{"role": "user", "content": [{**TEXT, "type": "text"}] * (MAX_ITEMS + 1)}],
    ],
)
def test_there_are_at_most_so_many_items_and_parts(sent: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_items(sent)
    assert refused.value.code == "array_above_max_length"
    assert refused.value.param == ("input" if len(sent) > 1 else "input[0].content")
    if len(sent) == 1:
        with pytest.raises(InvalidRequest, match="array too long"):
            decode_item(sent[0], ("input", 0))


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_texts_have_the_type_of_their_role(role: str, kind: str) -> None:
    wanted = OutputText(text="a") if role == "assistant" else InputText(text="a")
    message = {"role": role, "content": [{"type": kind, "text": "a"}]}
    if kind == "output_text" and role != "assistant":
        with pytest.raises(InvalidRequest) as refused:
            decode_items([message])
        assert refused.value.param == "input[0].content[0].type"
        return
    for content in (message["content"], "a"):
        [made] = decode_items([{**message, "content": content}])
        assert isinstance(made, items.Message)
        assert (made.role, made.content) == (role, [wanted])


def test_parts_of_other_types_beside_a_renamed_one_are_kept() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_image", "image_url": "u"}]
    [made] = decode_items([{"role": "user", "content": parts}])
    assert isinstance(made, items.Message)
    assert [type(each) for each in made.content] == [InputText, InputImage]


@pytest.mark.parametrize("kind", [None, "text", "input_text", "output_text", "reasoning_text"])
def test_reasoning_of_other_servers_has_openais_types(kind: str | None) -> None:
    part = {"text": "a"} if kind is None else {"type": kind, "text": "a"}
    [made, plain] = decode_items(
        [
            {"type": "reasoning", "content": [part], "summary": []},
            {"type": "reasoning", "content": "a", "summary": "b"},
        ]
    )
    assert isinstance(made, items.Reasoning)
    assert isinstance(plain, items.Reasoning)
    assert made.content == plain.content == decode_reasoning("a")
    assert [(type(each).__name__, each.text) for each in plain.summary] == [("SummaryText", "b")]


def decode_reasoning(text: str) -> Any:
    part = {"type": "reasoning_text", "text": text}
    [made] = decode_items([{"type": "reasoning", "content": [part], "summary": []}])
    assert isinstance(made, items.Reasoning)
    return made.content


@pytest.mark.parametrize("name", ["images", "attachments", "file_ids"])
@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"role": "user", "content": "a"}, "content"),
        ({"role": "user", "content": [TEXT]}, "content"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, "content"),
        ({"type": "function_call_output", "call_id": "c", "output": "a"}, "output"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "a"}, "output"),
    ],
)
def test_images_beside_the_content_are_refused_and_nothing_if_there_are_none(
    item: dict[str, Any], place: str, name: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"parts of '{place}'") as refused:
        decode_items([{**CALL}, {**item, name: ["u"]}])
    assert refused.value.param == f"input[1].{name}"
    assert decode_items([{**item, name: []}]) == decode_items([item])


def test_an_output_names_its_call_or_its_tool() -> None:
    for named in ({"call_id": "c"}, {"name": "f"}, {"call_id": None, "name": "f"}):
        [made] = decode_items([{"type": "function_call_output", "output": "a", **named}])
        assert isinstance(made, items.FunctionCallOutput)
    for unnamed in ({}, {"call_id": None}, {"name": ""}, {"call_id": None, "name": None}):
        with pytest.raises(InvalidRequest, match="or the name of the tool") as refused:
            decode_items([{"type": "function_call_output", "output": "a", **unnamed}])
        assert refused.value.param == "input[0].call_id"
