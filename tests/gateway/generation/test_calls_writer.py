"""Calls as they are written: with the tool's own name, and an id that no other call of the conversation has."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import CallArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gateway.generation.writers import CallsWriter
from gateway.plugins.protocols import FinishReason, ToolDefinition
from gateway.tools.called_names import called_names
from gateway.wire import items

TOOLS = called_names([ToolDefinition(name="lights__set", namespace="lights")])


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
