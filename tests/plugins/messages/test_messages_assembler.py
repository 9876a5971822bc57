"""Any output, cut in any way, is a stream by the grammar, and adds up to the plain answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

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
)
from gateway.base.errors import EngineError
from gateway.plugins.protocols import FinishReason, Outcome
from gateway.wire.response import InputTokensDetails, OutputTokensDetails
from gateway.wire.response import Usage as GatewayUsage
from gateway_messages.answer import Message, Usage
from gateway_messages.assembler import MessageAssembler
from gateway_messages.events import MessageEventWriter
from gateway_messages.message import INVALID_JSON, MessageBodyWriter
from gateway_messages.signatures import DigestSigner, SealingSigner
from tests.gateway.items.cut_outputs import batched, cut
from tests.plugins.messages.messages_grammar import GrammarError, fold_events, parse_events

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
BEGUN = Message(id="msg_1", model="m", usage=Usage(input_tokens=11, output_tokens=0))
USED = GatewayUsage(
    input_tokens=11,
    input_tokens_details=InputTokensDetails(cached_tokens=4),
    output_tokens=9,
    output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
    total_tokens=20,
)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)


@st.composite
def calls(draw: st.DrawFn) -> list[Delta]:
    text = draw(
        st.one_of(
            st.dictionaries(TEXT, TEXT).map(json.dumps),
            st.sampled_from(["", "{}", "[1]", "null", "no json", '{"a": ']),
        )
    )
    pieces = cut(text, draw(st.lists(st.integers(1, 5), max_size=4)))
    started = CallStarted(draw(TEXT), draw(st.sampled_from([None, "functions.f:0"])))
    return [started, *map(CallArgumentsDelta, pieces), CallEnded()]


CUT: list[Delta] = [CallStarted("f"), CallArgumentsDelta('{"a": ')]
OUTPUTS = st.builds(
    lambda groups, rest: [delta for group in groups for delta in group] + rest,
    st.lists(
        st.one_of(
            st.lists(TEXT, min_size=1, max_size=3).map(lambda ts: [TextDelta(t) for t in ts]),
            st.lists(TEXT, min_size=1, max_size=3).map(lambda ts: [ReasoningDelta(t) for t in ts]),
            TEXT.map(lambda t: [RefusalDelta(t)]),
            st.just([MessageStarted("final_answer")]),
            st.just([BlockEnded()]),
            calls(),
        ),
        max_size=6,
    ),
    st.sampled_from([[], CUT]),
)
BATCHES = st.lists(st.integers(1, 6), max_size=12)
REASONS = st.sampled_from(["stop", "length", "content_filter"])


def assembler(writer: Any, **options: Any) -> MessageAssembler:
    count = itertools.count()
    options = {"new_signer": DigestSigner, **options}
    return MessageAssembler(writer, new_id=lambda prefix: f"{prefix}{next(count)}", **options)


def outcome(
    reason: FinishReason, stop_reason: str | int | None = None, *, full: bool = False
) -> Outcome:
    return Outcome(reason=reason, stop_reason=stop_reason, usage=USED, context_full=full)


def streamed(
    batches: Sequence[Sequence[Delta]], end: Outcome, *, idle: bool = False, **options: Any
) -> dict[str, Any]:
    made = assembler(MessageEventWriter(BEGUN, "req_1"), **options)
    parts = []
    for batch in batches[:-1]:
        parts.append(made.feed(batch))
        if idle:
            parts.append(made.idle())
    body = b"".join([*parts, made.end(batches[-1], end.reason), made.finish(end)])
    events = parse_events(body)
    for event in events:
        if event["type"] != "ping":
            SDK_EVENT.validate_python(event)
    return fold_events(events)


def plain(deltas: Sequence[Delta], end: Outcome, **options: Any) -> dict[str, Any]:
    made = assembler(MessageBodyWriter(BEGUN), **options)
    assert made.end(deltas, end.reason) == b""
    message: dict[str, Any] = json.loads(made.finish(end))
    SdkMessage.model_validate(message)
    return message


@given(OUTPUTS, BATCHES, REASONS, st.booleans())
def test_any_output_streams_by_the_grammar_and_adds_up_to_the_plain_answer(
    deltas: list[Delta], sizes: list[int], reason: FinishReason, idle: bool
) -> None:
    end = outcome(reason)
    assert streamed(batched(deltas, sizes), end, idle=idle) == plain(deltas, end)


@given(OUTPUTS)
def test_nothing_of_the_output_is_lost_and_neighbours_of_one_kind_are_one_block(
    deltas: list[Delta],
) -> None:
    content = plain(deltas, outcome("stop"))["content"]

    def said(*kinds: type) -> str:
        return "".join(delta.text for delta in deltas if isinstance(delta, kinds))  # type: ignore[union-attr]

    shown = {"text": "", "thinking": ""}
    for block in content:
        if block["type"] in shown:
            shown[block["type"]] += block[block["type"]]
            assert block[block["type"]], "no block is empty"
    assert shown == {"text": said(TextDelta, RefusalDelta), "thinking": said(ReasoningDelta)}
    names = [delta.name for delta in deltas if isinstance(delta, CallStarted)]
    assert [block["name"] for block in content if block["type"] == "tool_use"] == names
    if not any(isinstance(delta, BlockEnded | MessageStarted) for delta in deltas):
        kinds = [block["type"] for block in content if block["type"] != "tool_use"]
        kinds_and_calls = [block["type"] for block in content]
        pairs = itertools.pairwise(kinds_and_calls)
        assert all(one != other or one == "tool_use" for one, other in pairs), kinds


CALL: list[Delta] = [CallStarted("f"), CallArgumentsDelta('{"a": 1}'), CallEnded()]
ENDS: dict[str, tuple[list[Delta], Outcome, str, str | None]] = {
    "text": ([TextDelta("a")], outcome("stop"), "end_turn", None),
    "nothing": ([], outcome("stop"), "end_turn", None),
    "an engine's own stop": ([TextDelta("a")], outcome("stop", "<|end|>"), "end_turn", None),
    "a stop token": ([TextDelta("a")], outcome("stop", 7), "end_turn", None),
    "a stop sequence": ([TextDelta("a")], outcome("stop", "END"), "stop_sequence", "END"),
    "the limit": ([TextDelta("a")], outcome("length"), "max_tokens", None),
    "the context": (
        [TextDelta("a")], outcome("length", full=True), "model_context_window_exceeded", None),
    "a call": (CALL, outcome("stop"), "tool_use", None),
    "a call and text": ([*CALL, TextDelta("a")], outcome("stop"), "tool_use", None),
    "a call cut off": ([*CALL, *CUT], outcome("length"), "max_tokens", None),
    "a call left open": (CUT, outcome("stop"), "end_turn", None),
    "a filter": ([TextDelta("a")], outcome("content_filter"), "refusal", None),
    "a refusal": ([RefusalDelta("No.")], outcome("stop"), "refusal", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_stop_reason_says_what_ended_it(name: str) -> None:
    deltas, end, reason, sequence = ENDS[name]
    for message in (
        plain(deltas, end, stop_sequences=("END",)),
        streamed([[], deltas], end, stop_sequences=("END",)),
    ):
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


def test_what_was_read_from_the_cache_is_told_apart() -> None:
    for message in (
        plain([TextDelta("a")], outcome("stop")),
        streamed([[TextDelta("a")], []], outcome("stop")),
    ):
        usage = message["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 11
        assert usage["cache_read_input_tokens"] == 4
        assert usage["output_tokens"] == 9
        assert usage["output_tokens_details"] == {"thinking_tokens": 2}


def test_an_input_that_is_no_object_is_shown_as_the_text_that_it_is() -> None:
    [block] = plain(CUT, outcome("length"))["content"]
    assert block["input"] == {INVALID_JSON: '{"a": '}


def test_omitted_thinking_is_in_its_signature_alone() -> None:
    deltas = [ReasoningDelta("se"), ReasoningDelta("cret"), TextDelta("a")]
    options: dict[str, Any] = {
        "shows_thinking": False,
        "new_signer": lambda: SealingSigner(lambda text: f"sealed {text[::-1]}"),
    }
    for message in (
        plain(deltas, outcome("stop"), **options),
        streamed([deltas[:1], deltas[1:]], outcome("stop"), **options),
    ):
        thinking = message["content"][0]
        assert (thinking["thinking"], thinking["signature"]) == ("", "sealed terces")


def test_an_answer_that_nobody_asked_for_has_no_blocks() -> None:
    for message in (
        plain([TextDelta("a")], outcome("length"), hides_output=True),
        streamed([[TextDelta("a")], []], outcome("length"), hides_output=True),
    ):
        assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
        assert message["usage"]["output_tokens"] == 0


def test_a_failure_in_the_middle_is_an_error_event() -> None:
    made = assembler(MessageEventWriter(BEGUN, "req_1"))
    body = made.feed([TextDelta("a")]) + made.fail(EngineError("It broke."))
    assert parse_events(body)[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "It broke."},
        "request_id": "req_1",
    }


def start(index: int, kind: str = "text") -> dict[str, Any]:
    block = {"type": kind, "text": "", "thinking": "", "signature": "", "id": "i", "name": "n"}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


FIRST = {"type": "message_start", "message": {"content": [], "stop_reason": None, "usage": {}}}
LAST = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
    {"type": "message_stop"},
]
BAD_STREAMS: dict[str, list[dict[str, Any]]] = {
    "empty": [],
    "no beginning": LAST,
    "two beginnings": [FIRST, FIRST, *LAST],
    "no end": [FIRST],
    "no stop": [FIRST, LAST[0]],
    "two ends": [FIRST, *LAST, *LAST],
    "a block left open": [FIRST, start(0), *LAST],
    "an index left out": [FIRST, start(1), stop(1), *LAST],
    "overlapping blocks": [FIRST, start(0), start(0), stop(0), *LAST],
    "a delta without a block": [FIRST, delta(0, "text_delta", text="a"), *LAST],
    "a delta of another block": [FIRST, start(0), delta(1, "text_delta", text="a"), stop(0), *LAST],
    "thinking in text": [FIRST, start(0), delta(0, "thinking_delta", thinking="a"), stop(0), *LAST],
    "an unsigned thought": [FIRST, start(0, "thinking"), stop(0), *LAST],
    "thinking after the signature": [
        FIRST,
        start(0, "thinking"),
        delta(0, "signature_delta", signature="s"),
        delta(0, "thinking_delta", thinking="a"),
        stop(0),
        *LAST,
    ],
    "an error": [FIRST, {"type": "error"}, *LAST],
}


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_the_checker_sees_what_is_wrong(name: str) -> None:
    with pytest.raises(GrammarError):
        fold_events(BAD_STREAMS[name])


@pytest.mark.parametrize("body", [b"data: {}\n\n", b"event: a\ndata: {}", b'event: a\ndata: {"type":"b"}\n\n'])  # fmt: skip
def test_the_framing_is_checked(body: bytes) -> None:
    with pytest.raises(GrammarError):
        parse_events(body)
