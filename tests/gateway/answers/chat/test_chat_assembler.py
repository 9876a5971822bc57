from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion import Choice as SdkChoice

from gateway.answers.chat.assembler import ChoiceAssembler, ChoiceWriter
from gateway.answers.chat.chunks import ChunkWriter
from gateway.answers.chat.message import ChoiceCollector
from gateway.answers.chat.tee import TeeWriter
from gateway.answers.chunks import chunk_head
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
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.protocols import FinishReason
from gateway.tools.roles import CallRole
from gateway.wire.common import encode
from gateway.wire.response import Response
from gateway_testing.chat_grammar import GrammarError, fold_chunks, parse_chunks
from tests.gateway.items.cut_outputs import batched, cut

ROLES = {
    "client_fn": CallRole(),
    "custom": CallRole(item_type="custom_tool_call"),
    "served": CallRole(item_type="mcp_call", server_label="tools"),
}
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
BOTH = ("reasoning_content", "reasoning")
HEAD = chunk_head("chatcmpl-1", "chat.completion.chunk", 7, "m", None)


@st.composite
def calls(draw: st.DrawFn) -> list[Delta]:
    name = draw(st.sampled_from([*ROLES, "unknown"]))
    value = {"input": draw(TEXT)} if name == "custom" else draw(st.dictionaries(TEXT, TEXT))
    text = draw(st.sampled_from([json.dumps(value), ""])) if name != "custom" else json.dumps(value)
    pieces = cut(text, draw(st.lists(st.integers(1, 5), max_size=4)))
    return [CallStarted(name), *map(CallArgumentsDelta, pieces), CallEnded()]


OUTPUTS = st.lists(
    st.one_of(
        st.lists(TEXT, min_size=1, max_size=3).map(lambda ts: [TextDelta(t) for t in ts]),
        st.lists(TEXT, min_size=1, max_size=3).map(lambda ts: [ReasoningDelta(t) for t in ts]),
        TEXT.map(lambda t: [RefusalDelta(t)]),
        st.just([MessageStarted("final_answer")]),
        st.just([BlockEnded()]),
        calls(),
    ),
    max_size=6,
).map(lambda groups: [delta for group in groups for delta in group])
BATCHES = st.lists(st.integers(1, 6), max_size=12)
REASONS = st.sampled_from(["stop", "length", "content_filter"])


def assembler(writer: ChoiceWriter, **options: Any) -> ChoiceAssembler:
    count = itertools.count()
    return ChoiceAssembler(
        writer,
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        **options,
    )


def chunk_writer(**options: Any) -> ChunkWriter:
    defaults: dict[str, Any] = {
        "reasoning_fields": BOTH,
        "logprobs": False,
        "legacy": False,
        "token_ids": None,
        "includes_usage": False,
        "usage_so_far": None,
    }
    return ChunkWriter(HEAD, 0, **{**defaults, **options})


def message_writer(*, legacy: bool = False) -> ChoiceCollector:
    return ChoiceCollector(0, reasoning_fields=BOTH, logprobs=False, legacy=legacy, token_ids=None)


def streamed(
    batches: Sequence[Sequence[Delta]],
    reason: FinishReason,
    *,
    legacy: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The one choice of a stream, checked and folded."""
    made = assembler(chunk_writer(legacy=legacy), **options)
    body = b"".join(made.feed(batch) for batch in batches[:-1])
    body += made.end(batches[-1], reason) + made.finish() + b"data: [DONE]\n\n"
    chunks = parse_chunks(body)
    for chunk in chunks:
        if '"custom"' not in json.dumps(chunk):  # the SDK has no type for streamed custom calls yet
            ChatCompletionChunk.model_validate(chunk)
    choice: dict[str, Any] = fold_chunks(chunks)["choices"][0]
    return choice


def plain(
    deltas: Sequence[Delta], reason: FinishReason, *, legacy: bool = False, **options: Any
) -> dict[str, Any]:
    """The one choice of a plain answer."""
    writer = message_writer(legacy=legacy)
    made = assembler(writer, **options)
    assert made.end(deltas, reason) == b""
    assert made.finish() == b""
    choice: dict[str, Any] = json.loads(encode(writer.choice()))
    SdkChoice.model_validate(choice)
    return choice


def as_told(choice: dict[str, Any]) -> dict[str, Any]:
    """Without what a stream does not tell: nulls and annotations."""
    message = {k: v for k, v in choice["message"].items() if v is not None and k != "annotations"}
    return {**choice, "message": message}


@PATIENT
@given(OUTPUTS, BATCHES, REASONS)
def test_any_output_streams_by_the_grammar_and_adds_up_to_the_plain_answer(
    deltas: list[Delta], sizes: list[int], reason: FinishReason
) -> None:
    stream = streamed(batched(deltas, sizes), reason)
    assert as_told(stream) == as_told(plain(deltas, reason))


@PATIENT
@given(OUTPUTS, BATCHES, REASONS, st.booleans())
def test_what_is_gathered_beside_a_stream_is_the_plain_answer(
    deltas: list[Delta], sizes: list[int], reason: FinishReason, legacy: bool
) -> None:
    """And the stream is the same as without."""
    batches = batched(deltas, sizes)
    message = message_writer(legacy=legacy)
    sent = []
    for writer in (chunk_writer(legacy=legacy), TeeWriter(chunk_writer(legacy=legacy), message)):
        made = assembler(writer)
        body = b"".join(made.feed(batch) for batch in batches[:-1])
        sent.append(body + made.end(batches[-1], reason) + made.finish())
    assert sent[0] == sent[1]
    assert message.finished
    assert json.loads(encode(message.choice())) == plain(deltas, reason, legacy=legacy)


@PATIENT
@given(OUTPUTS, REASONS)
def test_the_same_output_says_the_same_in_both_apis(
    deltas: list[Delta], reason: FinishReason
) -> None:
    choice = plain(deltas, reason)
    message = choice["message"]
    count = itertools.count()
    other = ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="in_progress"),
        roles=ROLES,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        clock=lambda: 7.0,
    )
    other.start()
    other.feed(deltas)
    other.end((), reason)
    other.finish(None)
    output = json.loads(encode(other.response.output))

    def texts(kind: str, part: str, field: str) -> list[str]:
        return [
            "".join(p[field] for p in item["content"] if p["type"] == part)
            for item in output
            if item["type"] == kind
        ]

    said = [text for text in texts("message", "output_text", "text") if text]
    assert (message["content"] or "") == "\n\n".join(said)
    assert (message["refusal"] or "") == "".join(texts("message", "refusal", "refusal"))
    thought = "\n\n".join(texts("reasoning", "reasoning_text", "text"))
    assert (message["reasoning"] or "") == thought
    assert message["reasoning"] == message["reasoning_content"]
    shown = [
        (call["function"]["name"], call["function"]["arguments"])
        if call["type"] == "function"
        else (call["custom"]["name"], call["custom"]["input"])
        for call in message.get("tool_calls", ())
    ]
    assert shown == [
        (item["name"], item.get("arguments", item.get("input")))
        for item in output
        if item["type"] in ("function_call", "custom_tool_call")
    ]
    assert (other.response.status == "completed") == (
        choice["finish_reason"] in ("stop", "tool_calls")
    )


CALL: list[Delta] = [CallStarted("client_fn"), CallArgumentsDelta('{"a": 1}'), CallEnded()]
CUT: list[Delta] = [CallStarted("client_fn"), CallArgumentsDelta('{"a": ')]
HIDDEN: list[Delta] = [CallStarted("served"), CallArgumentsDelta("{}"), CallEnded()]


@pytest.mark.parametrize(
    ("deltas", "ended", "options", "expected"),
    [
        ([TextDelta("a")], "stop", {}, "stop"),
        ([TextDelta("a")], "length", {}, "length"),
        ([TextDelta("a")], "content_filter", {}, "content_filter"),
        ([*CALL], "stop", {}, "tool_calls"),
        ([*CALL, *CALL], "stop", {}, "tool_calls"),
        ([*CALL, *CUT], "length", {}, "length"),
        ([*CUT], "stop", {}, "stop"),
        ([*CALL], "stop", {"calls_finish": "stop"}, "stop"),
        ([*CALL], "stop", {"calls_finish": "function_call", "legacy": True}, "function_call"),
        ([*HIDDEN, TextDelta("a")], "stop", {}, "stop"),
    ],
)  # fmt: skip
def test_the_finish_reason_follows_openais_rules(
    deltas: list[Delta], ended: FinishReason, options: dict[str, Any], expected: str
) -> None:
    assert plain(deltas, ended, **options)["finish_reason"] == expected
    assert streamed([[], deltas], ended, **options)["finish_reason"] == expected


def test_a_legacy_call_is_shown_as_a_function_call() -> None:
    choice = streamed([[], CALL], "stop", legacy=True, calls_finish="function_call")
    called = {"name": "client_fn", "arguments": '{"a": 1}'}
    assert choice["message"]["function_call"] == called
    whole = plain(CALL, "stop", legacy=True, calls_finish="function_call")
    assert whole["message"]["function_call"] == called
    assert "tool_calls" not in whole["message"]


def test_reasoning_that_nobody_asked_for_is_left_out() -> None:
    deltas: list[Delta] = [
        ReasoningDelta("hm"),
        TextDelta("a"),
        ReasoningDelta("hm"),
        TextDelta("b"),
    ]
    message = plain(deltas, "stop", shows_reasoning=False)["message"]
    assert (message["content"], message["reasoning"]) == ("a\n\nb", None)


def test_an_echoed_lead_is_one_text_with_what_follows() -> None:
    assert plain([TextDelta("b")], "stop", lead="a")["message"]["content"] == "ab"
    assert streamed([[TextDelta("b")], []], "stop", lead="a")["message"]["content"] == "ab"


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    part = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [part], **fields}


def started(index: int, call_id: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {
        "tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]
    }


ROLE = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop")
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
BAD_STREAMS: dict[str, list[dict[str, Any]]] = {
    "empty": [],
    "no role": [chunk({"content": "a"}), END],
    "two roles": [ROLE, ROLE, END],
    "no finish": [ROLE, chunk({"content": "a"})],
    "two finishes": [ROLE, END, END],
    "text after the finish": [ROLE, END, chunk({"content": "a"})],
    "text in the finish": [ROLE, chunk({"content": "a"}, "stop")],
    "changing id": [ROLE, {**END, "id": "d"}],
    "changing model": [ROLE, {**END, "model": "n"}],
    "a call index is left out": [ROLE, chunk(started(1, "x")), chunk({}, "tool_calls")],
    "a call id twice": [ROLE, chunk(started(0, "x")), chunk(started(1, "x")), chunk({}, "tool_calls")],
    "a call that never began": [ROLE, chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}), END],
    "calls without a call": [ROLE, chunk({}, "tool_calls")],
    "arguments that are not JSON": [
        ROLE,
        chunk(started(0, "x")),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
        chunk({}, "tool_calls"),
    ],
    "usage that nobody asked for": [ROLE, END, {**END, "choices": [], "usage": USAGE}],
    "a second choice without the first": [{**ROLE, "choices": [{**ROLE["choices"][0], "index": 1}]},
                                          {**END, "choices": [{**END["choices"][0], "index": 1}]}],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_the_checker_sees_what_is_wrong(name: str) -> None:
    with pytest.raises(GrammarError):
        fold_chunks(BAD_STREAMS[name])


def test_the_checker_takes_a_good_stream_and_wants_usage_where_it_was_asked_for() -> None:
    assert fold_chunks([ROLE, END])["choices"][0]["finish_reason"] == "stop"
    with pytest.raises(GrammarError):
        fold_chunks([ROLE, END], includes_usage=True)
    nulled = [{**ROLE, "usage": None}, {**END, "usage": None}]
    whole = fold_chunks([*nulled, {**END, "choices": [], "usage": USAGE}], includes_usage=True)
    assert whole["usage"] == USAGE


@pytest.mark.parametrize("body", [b"", b"data: {}\n\n", b"event: x\ndata: {}\n\ndata: [DONE]\n\n"])
def test_the_framing_is_checked(body: bytes) -> None:
    with pytest.raises(GrammarError):
        parse_chunks(body)
