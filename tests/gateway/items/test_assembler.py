from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    TextDelta,
)
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.protocols import ToolResult
from gateway.wire.common import encode
from gateway.wire.events import Event
from gateway.wire.response import Response, Usage
from gateway_testing.grammar import fold
from tests.gateway.items.random_deltas import DELTAS, ROLES

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = Usage(input_tokens=1, output_tokens=2, total_tokens=3)


def assembler(*, summarizes: bool = False) -> ResponseAssembler:
    count = itertools.count()
    return ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="in_progress"),
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        clock=lambda: 7.0,
        summarizes=summarizes,
    )


ENDINGS = st.sampled_from(["finish", "length", "fail", "cancel"])


def play(
    deltas: list[Delta], ending: str, *, cut: list[int], answered: int, summarizes: bool = False
) -> list[Event]:
    """A whole response: `deltas` fed in batches, as many server calls answered as `answered` says."""
    made = assembler(summarizes=summarizes)
    out: list[Event] = [*made.start()]
    points = sorted({min(i, len(deltas)) for i in cut} | {0, len(deltas)})
    for a, b in itertools.pairwise(points):
        out += made.feed(deltas[a:b])
    out += made.end((), "length" if ending == "length" else "stop")
    for call in made.items.pending_calls[:answered]:
        out += made.running([call])
        out += made.called(call, ToolResult(text="ok", failed=answered % 2 == 0))
    match ending:
        case "fail":
            out += made.fail("server_error", "broken", USAGE)
        case "cancel":
            out += made.cancel(USAGE)
        case _:
            out += made.finish(USAGE)
    return [*out, made.terminal()]


def plain(events: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(encode(event)) for event in events]


@given(DELTAS, ENDINGS, st.lists(st.integers(0, 40)), st.integers(0, 9), st.booleans())
def test_every_run_keeps_the_grammar_and_folds_to_its_final_response(
    deltas: list[Delta], ending: str, cut: list[int], answered: int, summarizes: bool
) -> None:
    events = plain(play(deltas, ending, cut=cut, answered=answered, summarizes=summarizes))
    final = fold(events)
    assert (
        final["status"]
        == {
            "finish": "completed",
            "length": "incomplete",
            "fail": "failed",
            "cancel": "cancelled",
        }[ending]
    )
    assert final["usage"]["total_tokens"] == 3


@given(DELTAS, ENDINGS, st.lists(st.integers(0, 40)), st.integers(0, 9), st.booleans())
def test_every_event_is_one_of_the_official_sdk(
    deltas: list[Delta], ending: str, cut: list[int], answered: int, summarizes: bool
) -> None:
    for event in plain(play(deltas, ending, cut=cut, answered=answered, summarizes=summarizes)):
        assert SDK_EVENT.validate_python(event).type == event["type"]


@given(DELTAS, ENDINGS, st.lists(st.integers(0, 40)))
def test_how_deltas_are_batched_does_not_matter(
    deltas: list[Delta], ending: str, cut: list[int]
) -> None:
    assert play(deltas, ending, cut=cut, answered=9) == play(deltas, ending, cut=[], answered=9)


@given(DELTAS, ENDINGS)
def test_a_summary_is_the_reasoning_and_changes_nothing_else(
    deltas: list[Delta], ending: str
) -> None:
    told = plain(play(deltas, ending, cut=[], answered=0, summarizes=True))
    final, without = fold(told), fold(plain(play(deltas, ending, cut=[], answered=0)))
    for item in final["output"]:
        if item["type"] == "reasoning":
            assert [part["text"] for part in item["summary"]] == [item["content"][0]["text"]]
            item["summary"] = []
    assert final == without


@given(DELTAS, st.integers(0, 40))
def test_an_output_that_breaks_off_anywhere_still_ends_well(deltas: list[Delta], at: int) -> None:
    for ending in ("finish", "length", "fail", "cancel"):
        fold(plain(play(deltas[:at], ending, cut=[], answered=0)))


def test_the_finished_item_is_the_very_object_that_was_told() -> None:
    made = assembler()
    made.start()
    events = made.feed([TextDelta("a"), BlockEnded()])
    made.end((), "stop")
    made.finish(USAGE)
    terminal = made.terminal()
    assert terminal.response.output[0] is events[-1].item  # type: ignore[attr-defined, union-attr]


def test_a_cut_message_is_incomplete_and_says_why() -> None:
    final = fold(plain(play([TextDelta("half a sen")], "length", cut=[], answered=0)))
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["output"][0]["status"] == "incomplete"


def test_a_cut_call_is_incomplete_even_if_the_engine_says_stop() -> None:
    deltas: list[Delta] = [CallStarted("client_fn"), CallArgumentsDelta('{"a')]
    final = fold(plain(play(deltas, "finish", cut=[], answered=0)))
    assert final["output"][0]["status"] == "incomplete"


def test_a_gateway_call_that_the_model_stopped_in_is_run() -> None:
    deltas: list[Delta] = [CallStarted("served"), CallArgumentsDelta('{"a')]
    for reason, pending in (("stop", ['{"a']), ("length", []), ("abort", [])):
        made = assembler()
        made.start()
        made.feed(deltas)
        made.end((), reason)  # type: ignore[arg-type]
        assert [call.arguments for call in made.items.pending_calls] == pending


def test_free_text_calls_show_the_text_and_not_its_json() -> None:
    deltas: list[Delta] = [
        CallStarted("custom"),
        CallArgumentsDelta('{"input": "a\\n'),
        CallArgumentsDelta('b"}'),
        CallEnded(),
    ]
    final = fold(plain(play(deltas, "finish", cut=[], answered=0)))
    assert final["output"][0]["input"] == "a\nb"


def test_a_tool_of_a_namespace_is_shown_by_the_name_that_the_client_knows() -> None:
    deltas: list[Delta] = [CallStarted("spaced"), CallEnded()]
    final = fold(plain(play(deltas, "finish", cut=[], answered=0)))
    assert (final["output"][0]["name"], final["output"][0]["namespace"]) == ("inner", "ns")


def test_a_response_ends_once() -> None:
    made = assembler()
    made.start()
    made.finish(USAGE)
    with pytest.raises(RuntimeError):
        made.cancel(USAGE)


def test_a_call_without_arguments_is_told_as_an_empty_object() -> None:
    final = fold(plain(play([CallStarted("client_fn"), CallEnded()], "finish", cut=[], answered=0)))
    assert final["output"][0]["arguments"] == "{}"
