"""The state of an item according to its events: which later states continue it, and how it is closed without one."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.base.deltas import Delta
from gateway.items.assembler import ResponseAssembler
from gateway.items.item_events import ItemView, as_added, part_like, parts_of, written_of
from gateway.plugins.protocols import ToolResult
from gateway.wire import content, events, items
from gateway.wire.response import Response
from tests.gateway.items.random_deltas import DELTAS, ROLES


@given(DELTAS, st.sampled_from(["stop", "length"]), st.integers(0, 9))
def test_an_item_is_added_as_its_end_says_and_its_text_is_that_of_its_deltas(
    deltas: list[Delta], finish: Any, answered: int
) -> None:
    count = itertools.count()
    made = ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="in_progress"),
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        clock=lambda: 7.0,
    )
    told = [*made.start(), *made.feed(deltas), *made.end((), finish)]
    for call in made.items.pending_calls[:answered]:
        told += [*made.running([call]), *made.called(call, ToolResult(text="ok"))]
    told += made.finish(None)
    added = {e.output_index: e.item for e in told if isinstance(e, events.OutputItemAdded)}
    done = {e.output_index: e.item for e in told if isinstance(e, events.OutputItemDone)}
    assert added.keys() == done.keys()
    deltas_of = (
        events.FunctionCallArgumentsDelta,
        events.CustomToolCallInputDelta,
        events.McpCallArgumentsDelta,
        events.CodeInterpreterCallCodeDelta,
    )
    for index, item in done.items():
        assert as_added(item) == added[index]
        assert ItemView(added[index]).fits(item)
        text = "".join(
            e.delta for e in told if isinstance(e, deltas_of) and e.output_index == index
        )
        assert written_of(item) == text


PARTS: list[content.OutputPart] = [
    content.OutputText(text=""),
    content.Refusal(refusal=""),
    content.ReasoningText(text=""),
]
TEXT = st.text("ab", max_size=4)
MARK = content.UrlCitation(start_index=0, end_index=1, title="t", url="u")
OTHER = msgspec.structs.replace(MARK, url="other")


def with_parts(parts: list[content.OutputPart]) -> items.Item:
    if any(isinstance(each, content.ReasoningText) for each in parts):
        return items.Reasoning(id="i", content=parts or UNSET)  # type: ignore[arg-type]
    return items.Message(id="i", role="assistant", content=parts)  # type: ignore[arg-type]


@given(
    written=st.lists(TEXT, max_size=2),
    kind=st.sampled_from(PARTS),
    text=TEXT,
    later=TEXT,
    ended=st.booleans(),
    after=st.lists(TEXT, max_size=1),
)
def test_a_later_state_begins_with_what_was_told(
    written: list[str],
    kind: content.OutputPart,
    text: str,
    later: str,
    ended: bool,
    after: list[str],
) -> None:
    before = [part_like(kind, each) for each in written]
    view = ItemView(as_added(with_parts([kind])))
    view.parts, view.open, view.text, view.ended = before, kind, text, ended
    assert view.has_open_part

    def fits(*parts: content.OutputPart) -> bool:
        return view.fits(with_parts([*parts, *[part_like(kind, each) for each in after]]))

    assert fits(*before, part_like(kind, later)) == (
        later == text if ended else later.startswith(text)
    )
    assert fits(*before, part_like(kind, text))
    assert not view.fits(with_parts([*before]) if before else as_added(with_parts([kind])))
    others = [part_like(kind, f"{each}c") for each in written]
    assert not (written and fits(*others, part_like(kind, text)))
    whole = with_parts([*before, part_like(kind, text)])
    assert not view.fits(msgspec.structs.replace(whole, id="j"))
    assert not view.fits(items.FunctionCall(id="i", call_id="c", name="f", arguments=""))
    cut: Any = view.cut_off()
    assert view.fits(cut)
    assert (parts_of(cut), cut.status) == ([*before, part_like(kind, text)], "incomplete")


def test_an_open_part_keeps_its_type_and_its_annotations() -> None:
    view = ItemView(items.Message(id="i", role="assistant", content=[], status="in_progress"))
    view.open, view.text, view.annotations = content.OutputText(text=""), "a", [MARK]

    def fits(part: Any) -> bool:
        return view.fits(items.Message(id="i", role="assistant", content=[part]))

    assert fits(content.OutputText(text="ab", annotations=[MARK, OTHER]))
    assert not fits(content.OutputText(text="ab", annotations=[OTHER]))
    assert not fits(content.OutputText(text="ab"))
    assert not fits(content.Refusal(refusal="ab"))
    assert parts_of(view.cut_off()) == [content.OutputText(text="a", annotations=[MARK])]


CALLS: list[tuple[items.Item, str]] = [
    (items.FunctionCall(id="i", call_id="c", name="f", arguments=""), "arguments"),
    (items.McpCall(id="i", server_label="s", name="f", arguments=""), "arguments"),
    (items.CustomToolCall(id="i", call_id="c", name="f", input=""), "input"),
    (items.CodeInterpreterCall(id="i", container_id="c", code=""), "code"),
]


@pytest.mark.parametrize(("call", "field"), CALLS)
@given(text=TEXT, later=TEXT, ended=st.booleans())
def test_a_call_is_continued_by_its_text(
    call: items.Item, field: str, text: str, later: str, ended: bool
) -> None:
    view = ItemView(as_added(call))
    view.text, view.ended = text, ended
    assert view.fits(msgspec.structs.replace(call, **{field: later})) == (
        later == text if ended else later.startswith(text)
    )
    cut: Any = view.cut_off()
    assert (getattr(cut, field), cut.status) == (text, "incomplete")
    assert view.fits(cut)
    assert bool(getattr(cut, "error", None)) == isinstance(call, items.McpCall)


@given(done=st.lists(TEXT, max_size=2), begun=st.none() | TEXT, later=st.lists(TEXT, max_size=4))
def test_a_shell_call_is_continued_by_its_commands(
    done: list[str], begun: str | None, later: list[str]
) -> None:
    call = items.ShellCall(id="i", call_id="c", action=items.ShellAction(commands=later))
    view = ItemView(as_added(call))
    view.commands, view.command = done, begun
    rest = later[len(done) :]
    continues = begun is None or (rest != [] and rest[0].startswith(begun))
    assert view.fits(call) == (later[: len(done)] == done and continues)
    cut = view.cut_off()
    assert isinstance(cut, items.ShellCall)
    assert cut.action.commands == [*done, *([] if begun is None else [begun])]
    assert cut.status == "incomplete"
    assert view.fits(cut)


def test_a_summary_that_differs_is_not_a_later_state() -> None:
    view = ItemView(items.Reasoning(id="i", summary=[]))
    view.summary.open = "a"
    assert view.has_open_part
    for text, fits in (("ab", True), ("b", False)):
        summary = [content.SummaryText(text=text)]
        assert view.fits(items.Reasoning(id="i", summary=summary)) == fits
    cut = view.cut_off()
    assert isinstance(cut, items.Reasoning)
    assert (cut.summary, cut.content) == ([content.SummaryText(text="a")], UNSET)


def test_a_search_without_its_end_has_failed_and_what_was_added_whole_is_complete() -> None:
    search = items.FileSearchCall(id="i", queries=["q"], status="completed")
    added: Any = as_added(search)
    cut: Any = ItemView(added).cut_off()
    assert (added.status, cut.status) == ("in_progress", "failed")
    asked = items.McpApprovalRequest(id="i", server_label="s", name="f", arguments="{}")
    assert as_added(asked) is asked
    assert ItemView(asked).cut_off() is asked
