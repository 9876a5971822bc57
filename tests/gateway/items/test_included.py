"""Fields of items that a request includes: what a call's item left out is kept, and added when it is asked for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.items.included import OUTPUTS, RESULTS, SEALED, SOURCES, hidden_parts, with_included
from gateway.plugins.protocols import (
    CallRecord,
    CodeDetails,
    FileSearchDetails,
    SearchDetails,
    ToolImage,
    ToolResult,
)
from gateway.wire import content, items

SOURCE = items.UrlSource(url="https://a.example")
FOUND = items.FileSearchResult(file_id="file_1", score=0.5, text="a", attributes={"x": None})
LOGS = items.InterpreterLogs(logs="1")
IMAGE = items.InterpreterImage(url="data:image/png;base64,YQ==")
SHOWN: dict[str, items.Item] = {
    SOURCES: items.WebSearchCall(id="i", action=items.SearchAction(query="q", sources=[SOURCE])),
    RESULTS: items.FileSearchCall(id="i", queries=["q"], results=[FOUND]),
    OUTPUTS: items.CodeInterpreterCall(id="i", container_id="c", outputs=[LOGS, IMAGE]),
}
"""Whole items, by the value of `include` that shows all of each."""
HIDDEN: dict[str, items.Item] = {
    SOURCES: items.WebSearchCall(id="i", action=items.SearchAction(query="q")),
    RESULTS: items.FileSearchCall(id="i", queries=["q"]),
    OUTPUTS: items.CodeInterpreterCall(id="i", container_id="c"),
}
PICTURE = ToolImage(data=b"a", media_type="image/png")
RUN: dict[str, ToolResult] = {
    SOURCES: ToolResult(
        text="", details=SearchDetails(action=items.SearchAction(query="q", sources=[SOURCE]))
    ),
    RESULTS: ToolResult(text="", details=FileSearchDetails(queries=["q"], results=[FOUND])),
    OUTPUTS: ToolResult(text="", details=CodeDetails(logs="1"), images=[PICTURE]),
}
THOUGHT = items.Reasoning(
    id="i", content=[content.ReasoningText(text="a"), content.ReasoningText(text="b")]
)


def sealed(text: str, *, encrypted: str | None) -> str:
    return f"sealed {text} {encrypted}"


def record(hidden: dict[str, Any]) -> CallRecord:
    return CallRecord(name="f", arguments="{}", result="", hidden=hidden)


@pytest.mark.parametrize("kind", [*SHOWN])
@given(include=st.sets(st.sampled_from([*SHOWN, SEALED])))
def test_what_a_call_left_out_is_shown_where_it_is_asked_for(kind: str, include: set[str]) -> None:
    hidden = hidden_parts(HIDDEN[kind], RUN[kind])
    kept = record(msgspec.json.decode(msgspec.json.encode(hidden)))  # as a store returns it
    wanted = SHOWN[kind] if kind in include else HIDDEN[kind]
    assert with_included([HIDDEN[kind]], include, {"i": kept}, sealed) == [wanted]
    for records in ({}, {"other": kept}, {"i": record({})}):
        assert with_included([HIDDEN[kind]], include, records, sealed) == [HIDDEN[kind]]


@pytest.mark.parametrize("kind", [*SHOWN])
def test_what_a_call_shows_is_neither_kept_nor_replaced(kind: str) -> None:
    assert hidden_parts(SHOWN[kind], RUN[kind]) == {}
    other = record({"sources": [], "results": [], "outputs": []})
    assert with_included([SHOWN[kind]], [kind], {"i": other}, sealed) == [SHOWN[kind]]


def test_a_result_without_such_fields_has_nothing_to_keep() -> None:
    for item in (*HIDDEN.values(), items.WebSearchCall(action=items.OpenPageAction())):
        assert hidden_parts(item, ToolResult(text="")) == {}
    unknown = ToolResult(text="", details=FileSearchDetails(queries=["q"]))
    assert hidden_parts(HIDDEN[RESULTS], unknown) == {}
    assert hidden_parts(HIDDEN[RESULTS], RUN[SOURCES]) == {}


def test_reasoning_is_sealed_whole_with_what_its_engine_encrypted() -> None:
    records = {"i": CallRecord.of_reasoning("e")}
    own = msgspec.structs.replace(THOUGHT, encrypted_content="own")
    empty = msgspec.structs.replace(THOUGHT, content=UNSET)
    shown = with_included([THOUGHT, own, empty], [SEALED], records, sealed)
    assert shown == [
        msgspec.structs.replace(THOUGHT, encrypted_content="sealed ab e"),
        own,
        empty,
    ]
    [unknown] = with_included([THOUGHT], [SEALED], {}, sealed)
    assert isinstance(unknown, items.Reasoning)
    assert unknown.encrypted_content == "sealed ab None"
    assert with_included([THOUGHT], [SOURCES], records, sealed) == [THOUGHT]


def test_other_items_are_left_as_they_are_and_in_their_order() -> None:
    message = items.Message(id="i", role="user", content=[content.InputText(text="a")])
    records = {"i": record({"sources": []})}
    include = [*SHOWN, SEALED]
    assert with_included([message, HIDDEN[SOURCES]], include, records, sealed)[0] is message
