"""Writers that change what is written: calls have the tool's own name and an id of their own, or are left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    TextDelta,
)
from gateway.generation.writers import (
    CallsWriter,
    GenerationWriter,
    ReportingWriter,
    WriterWithoutCalls,
    unused_call_id,
)
from gateway.plugins.protocols import FinishReason, ToolDefinition
from gateway.tools.called_names import called_names
from gateway.wire import items
from tests.gateway.items.cut_outputs import batched
from tests.gateway.items.random_deltas import DELTAS, ROLES

TOOLS = called_names([ToolDefinition(name="lights__set", namespace="lights")])


DROPPED = frozenset({"client_fn", "python", "unknown"})


class Collected:
    """A writer whose output is what it was given."""

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        return [*deltas]

    def end(self, held: Sequence[Delta], reason: FinishReason) -> list[Delta]:
        return [*held]


def earlier(ids: Sequence[str]) -> list[items.Item]:
    return [items.FunctionCall(call_id=each, name="f", arguments="{}") for each in ids]


def written(ids: Sequence[str | None], known: Sequence[str] = ()) -> list[str | None]:
    writer = CallsWriter(Collected(), TOOLS, earlier(known))
    made = [writer.feed([CallStarted("f", each)])[0] for each in ids]
    return [each.call_id for each in made if isinstance(each, CallStarted)]


@given(
    st.lists(st.sampled_from(["call_0", "call_1", "functions.f:0", "functions.f:1", "", None])),
    st.lists(st.sampled_from(["call_0", "functions.f:0", "functions.g:0"])),
)
def test_no_id_is_given_out_twice(ids: list[str | None], known: list[str]) -> None:
    made = written(ids, known)
    assert len(made) == len(ids)
    given_out = [each for each in made if each is not None]
    assert len(given_out) == len(set(given_out))
    assert not set(given_out) & set(known)


def test_an_id_that_nobody_has_stays() -> None:
    assert written(["call_0", "functions.f:3"]) == ["call_0", "functions.f:3"]


def test_ids_that_count_go_on_counting() -> None:
    """The prompts of Kimi's models show their ids."""
    assert written(["functions.f:0", "functions.f:0"], ["functions.f:0"]) == [
        "functions.f:1",
        "functions.f:2",
    ]
    assert written(["call_0"], ["call_0"]) == [None], "a new one is made"


def test_a_call_has_the_name_of_its_tool_and_all_else_stays() -> None:
    writer = CallsWriter(Collected(), TOOLS, [])
    rest: list[Delta] = [CallArgumentsDelta("{}"), CallEnded(), TextDelta("lights.set")]
    for name in ("lights.set", "set", "functions.lights__set", "lights__set"):
        expected = [CallStarted("lights__set"), *rest]
        assert writer.feed([CallStarted(name), *rest]) == expected
        assert writer.end([CallStarted(name), *rest], "stop") == expected
    assert writer.feed([CallStarted("other")]) == [CallStarted("other")]


@given(
    st.text("af:", min_size=1, max_size=3),
    st.none() | st.integers(0, 12),
    st.sets(st.integers(0, 12)),
    st.booleans(),
)
def test_an_unused_id_is_the_next_number_of_one_that_counts(
    name: str, number: int | None, numbers: set[int], known: bool
) -> None:
    call_id = name if number is None else f"{name}:{number}"
    used = {f"{name}:{each}" for each in numbers} | ({call_id} if known else set())
    before = set(used)
    made = unused_call_id(call_id, used)
    if call_id not in before:
        assert made == call_id
    elif number is None:
        assert made is None
    else:
        following = (f"{name}:{each}" for each in range(number + 1, 99))
        assert made == next(each for each in following if each not in before)
    assert used == before | ({made} if made else set())


@pytest.mark.parametrize("call_id", ["f:", ":1", "f:1x", "f:1234567", "x" * 201 + ":1", "f:-1"])
def test_an_id_without_a_number_or_with_a_huge_one_does_not_count(call_id: str) -> None:
    assert unused_call_id(call_id, {call_id}) is None


def fed(writer: GenerationWriter[list[Delta]], batches: Sequence[Sequence[Delta]]) -> list[Delta]:
    """All that is written of several batches, of which the last one ends the output."""
    *most, last = batches
    return [*(each for batch in most for each in writer.feed(batch)), *writer.end(last, "stop")]


def blocks(deltas: Sequence[Delta]) -> list[list[Delta]]:
    """`deltas`, with those of each call together."""
    found: list[list[Delta]] = []
    inside = False
    for delta in deltas:
        inside = inside and isinstance(delta, CallArgumentsDelta | CallEnded)
        if inside:
            found[-1].append(delta)
        else:
            found.append([delta])
        inside = inside or isinstance(delta, CallStarted)
    return found


@given(
    DELTAS, st.lists(st.integers(0, 5)), st.sampled_from([DROPPED, frozenset([*ROLES, "unknown"])])
)
def test_a_dropped_call_only_ends_the_block_before_it(
    deltas: list[Delta], sizes: list[int], dropped: frozenset[str]
) -> None:
    expected: list[Delta] = []
    for block in blocks(deltas):
        first = block[0]
        drops = isinstance(first, CallStarted) and first.name in dropped
        expected += [BlockEnded()] if drops else block
    batches = batched(deltas, sizes)
    if dropped == DROPPED:
        writer = WriterWithoutCalls(Collected(), DROPPED.__contains__)
    else:
        writer = WriterWithoutCalls(Collected())
    assert fed(writer, batches) == expected


def test_a_dropped_call_may_be_cut_off() -> None:
    writer = WriterWithoutCalls(Collected(), DROPPED.__contains__)
    cut_off: list[Delta] = [CallStarted("python"), CallArgumentsDelta("{")]
    kept: list[Delta] = [CallStarted("search"), CallArgumentsDelta("{}"), CallEnded()]
    assert writer.feed(cut_off) == [BlockEnded()]
    assert writer.feed(kept) == kept


@given(DELTAS, st.lists(st.integers(0, 5)))
def test_everything_is_reported_before_it_is_written(deltas: list[Delta], sizes: list[int]) -> None:
    batches = batched(deltas, sizes)
    reported: list[Delta] = []

    class Checking(Collected):
        """Has written nothing that was not reported."""

        def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
            assert reported[len(reported) - len(deltas) :] == [*deltas]
            return super().feed(deltas)

    assert fed(ReportingWriter(Checking(), reported.extend), batches) == deltas
    assert reported == deltas
