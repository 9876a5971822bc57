from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    joined,
)
from gateway.items.assembler import ResponseAssembler
from gateway.tools.roles import CallRole
from gateway.wire.common import encode
from gateway.wire.event_frames import SseEncoder, sse_frame
from gateway.wire.response import Response
from gateway_testing.grammar import fold

TEXT = st.text(min_size=1, max_size=8) | st.sampled_from(
    ['"delta":""', '"sequence_number":0', "\u2028\n\r\0", "%b%d", "\\"]
)
ROLES = {"custom": CallRole(item_type="custom_tool_call")}


def calls(name: str, arguments: list[str]) -> list[Delta]:
    return [CallStarted(name), *map(CallArgumentsDelta, arguments), CallEnded()]


BLOCK: st.SearchStrategy[Any] = st.one_of(
    st.lists(TEXT.map(TextDelta), max_size=4),
    st.lists(TEXT.map(ReasoningDelta), max_size=4),
    st.lists(TEXT.map(RefusalDelta), max_size=2),
    st.sampled_from([[MessageStarted("commentary")], [MessageStarted()], [BlockEnded()]]),
    st.builds(calls, st.sampled_from(["custom", "function"]), st.lists(TEXT, max_size=3)),
)
DELTAS = st.lists(BLOCK, max_size=8).map(lambda blocks: [d for block in blocks for d in block])


def made(*, quiet: bool = False, summarizes: bool = False) -> ResponseAssembler:
    count = itertools.count()
    return ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="in_progress"),
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        clock=lambda: 7.0,
        quiet=quiet,
        summarizes=summarizes,
    )


@given(DELTAS, st.sampled_from(["stop", "length", "broken", "cancelled"]), st.booleans())
def test_a_quiet_response_is_the_one_that_a_stream_ends_with(
    deltas: list[Delta], ending: str, summarizes: bool
) -> None:
    finals: list[Any] = []
    for quiet in (False, True):
        assembler = made(quiet=quiet, summarizes=summarizes)
        events = [*assembler.start()]
        for delta in deltas:
            events += assembler.feed((delta,))
        if ending in ("stop", "length"):
            events += assembler.end((), ending)  # type: ignore[arg-type]
            events += assembler.finish(None)
        elif ending == "broken":
            events += assembler.fail("server_error", "broken", None)
        else:
            events += assembler.cancel(None)
        events.append(assembler.terminal())
        finals.append(json.loads(encode(assembler.response)))
        if not quiet:
            assert fold([json.loads(encode(event)) for event in events]) == finals[-1]
    streamed, quiet_one = finals
    assert quiet_one == streamed


@given(DELTAS)
def test_a_quiet_response_makes_no_events_but_the_terminal_one(deltas: list[Delta]) -> None:
    assembler = made(quiet=True)
    assert assembler.start() == []
    assert all(assembler.feed((delta,)) == [] for delta in deltas)
    assert assembler.end((), "stop") == []
    assert assembler.finish(None) == []
    assert assembler.terminal().sequence_number == 0


@given(DELTAS, st.booleans())
def test_events_of_a_stream_are_encoded_as_each_by_itself(
    deltas: list[Delta], summarizes: bool
) -> None:
    assembler = made(summarizes=summarizes)
    frame = SseEncoder().frame
    events = [*assembler.start()]
    for delta in deltas:
        assert not assembler.feed(())  # what holds text back hands on nothing
        events += assembler.feed((delta,))
    events += [*assembler.end((), "stop"), *assembler.finish(None), assembler.terminal()]
    assert [frame(event) for event in events] == [sse_frame(event) for event in events]


@given(DELTAS)
def test_joined_deltas_say_the_same_in_fewer(deltas: list[Delta]) -> None:
    def told(some: list[Delta]) -> list[tuple[str, str]]:
        runs = itertools.groupby(some, type)
        return [
            (kind.__name__, "".join([str(getattr(each, "text", each)) for each in group]))
            for kind, group in runs
        ]

    fewer = joined(deltas)
    assert told(fewer) == told(deltas)
    assert len(fewer) <= len(deltas)
