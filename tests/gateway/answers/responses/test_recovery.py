"""An event log that breaks off anywhere is ended as if it had not."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.answers.responses.recovery import closing_events
from gateway.base.deltas import (
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.protocols import CallRecord, FileSource, Source, ToolResult
from gateway.tools.roles import CallRole
from gateway.wire.common import encode
from gateway.wire.events import Event
from gateway.wire.response import Response, ResponseError, snapshot
from gateway_testing.grammar import fold

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ROLES = {
    "client": CallRole(),
    "custom": CallRole(item_type="custom_tool_call"),
    "served": CallRole(item_type="mcp_call", server_label="tools"),
    "python": CallRole(item_type="code_interpreter_call", server_label="cntr_1"),
    "search": CallRole(item_type="web_search_call"),
    "files": CallRole(item_type="file_search_call"),
    "shell": CallRole(item_type="shell_call"),
    "local_shell": CallRole(item_type="local_shell_call"),
    "apply_patch": CallRole(item_type="apply_patch_call"),
}
CITED = Source(cursor=1, url="https://a.test/", title="A")
CITED_FILE = FileSource(mark="0:1", file_id="file-1", filename="a.md")
TEXT = st.text(min_size=1, max_size=8)


@st.composite
def calls(draw: st.DrawFn) -> list[Delta]:
    name = draw(st.sampled_from([*ROLES, "unknown"]))
    arguments = ['{"input": ', json.dumps(draw(TEXT)), "}"]
    if draw(st.booleans()):
        commands = json.dumps(draw(st.lists(TEXT, max_size=3)))
        rest = ', "command": ["ls"], "type": "create_file", "path": "p", "diff": "+x"}'
        arguments = ['{"commands": ', commands, rest]
    return [CallStarted(name), *map(CallArgumentsDelta, arguments), CallEnded()]


BLOCKS = st.lists(
    st.one_of(
        st.lists(TEXT.map(TextDelta), max_size=3),
        st.just([TextDelta("See【1†L"), TextDelta("2】.【1†L3】")]),
        st.just([TextDelta("As 【0:"), TextDelta("1†a.md】."), TextDelta("【0:1】")]),
        st.lists(TEXT.map(ReasoningDelta), max_size=3),
        st.lists(TEXT.map(RefusalDelta), max_size=2),
        calls(),
    ),
    max_size=6,
)


def made(
    blocks: list[list[Delta]], answered: int, *, summarizes: bool = False, compacts: bool = False
) -> tuple[list[Event], Response]:
    """A whole stream, event by event, and its final response."""
    count = itertools.count()
    assembler = ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="queued"),
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        clock=lambda: 7.0,
        known={
            "ws_0": CallRecord(name="search", arguments="", result="", sources=[CITED]),
            "fs_0": CallRecord(name="files", arguments="", result="", files=[CITED_FILE]),
        },
        summarizes=summarizes,
    )
    out: list[Event] = [*assembler.start("queued"), *assembler.progress()]
    if compacts:
        out += assembler.open_compaction()
        out += assembler.compacting()
        out += assembler.end_compaction("sealed")
    for delta in itertools.chain(*blocks):
        out += assembler.feed([delta])
    out += assembler.end((), "stop")
    for call in assembler.items.pending_calls[:answered]:
        out += assembler.running([call])
        out += assembler.called(call, ToolResult(text="ok", failed=answered % 2 == 0))
    out += assembler.finish(None)
    return [*out, assembler.terminal()], snapshot(assembler.response)


def plain(events: list[bytes]) -> list[dict[str, Any]]:
    for event in events:
        SDK_EVENT.validate_json(event)
    return [json.loads(event) for event in events]


@settings(max_examples=150, deadline=None)
@given(BLOCKS, st.integers(0, 3), st.booleans(), st.booleans(), st.data())
def test_what_is_stored_is_told_to_the_end(
    blocks: list[list[Delta]],
    answered: int,
    summarizes: bool,
    compacts: bool,
    data: st.DataObject,
) -> None:
    """Its owner died after it had stored the response, wherever the log was then."""
    events, final = made(blocks, answered, summarizes=summarizes, compacts=compacts)
    logged = [encode(event) for event in events[: data.draw(st.integers(0, len(events) - 1))]]
    closing, ended = closing_events(logged, final)
    assert fold(plain([*logged, *closing])) == json.loads(encode(final))
    assert encode(ended) == encode(final)


@settings(max_examples=150, deadline=None)
@given(
    BLOCKS,
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["failed", "cancelled"]),
    st.data(),
)
def test_what_was_told_is_kept(
    blocks: list[list[Delta]],
    answered: int,
    summarizes: bool,
    compacts: bool,
    status: Any,
    data: st.DataObject,
) -> None:
    """Its owner died before it had stored anything."""
    events, whole = made(blocks, answered, summarizes=summarizes, compacts=compacts)
    logged = [encode(event) for event in events[: data.draw(st.integers(0, len(events) - 1))]]
    response = Response(id="resp_1", created_at=0, model="m", status=status)
    if status == "failed":
        response.error = ResponseError(code="server_error", message="gone")
    closing, ended = closing_events(logged, response)
    told = fold(plain([*logged, *closing]))
    assert told == json.loads(encode(ended))
    assert told["status"] == status
    assert len(ended.output) <= len(whole.output)
    done = [json.loads(each)["item"] for each in logged if b'"response.output_item.done"' in each]
    finished = {item["id"]: item for item in told["output"]}
    assert [finished[item["id"]] for item in done] == done


@settings(deadline=None)
@given(st.lists(TEXT.map(ReasoningDelta), min_size=1, max_size=3), st.data())
def test_a_summary_is_ended_wherever_it_broke_off(
    thoughts: list[Delta], data: st.DataObject
) -> None:
    events, _ = made([thoughts], 0, summarizes=True)
    logged = [encode(event) for event in events[: data.draw(st.integers(0, len(events) - 1))]]
    failed = Response(id="resp_1", created_at=0, model="m", status="failed")
    closing, _ = closing_events(logged, failed)
    for item in fold(plain([*logged, *closing]))["output"]:
        text = "".join(part["text"] for part in item.get("content", ()))
        assert all(text.startswith(part["text"]) for part in item["summary"])


def test_an_item_that_was_stored_differently_is_ended_as_it_was_told() -> None:
    events, final = made([[TextDelta("told")]], 0)
    _, other = made([[TextDelta("other")]], 0)
    logged = [encode(event) for event in events[:-4]]
    closing, ended = closing_events(logged, other)
    assert encode(ended) != encode(final)
    (item,) = fold(plain([*logged, *closing]))["output"]
    assert item["content"][0]["text"] == "told"
    assert item["status"] == "incomplete"
