"""However the output of a turn is cut, its served calls and its citations come out the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from anthropic.types.beta import BetaRawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from gateway.plugins.protocols import (
    AvailableTool,
    FileSource,
    Outcome,
    ServerTool,
    Source,
    ToolDefinition,
    ToolResult,
)
from gateway.wire.response import Usage as GatewayUsage
from gateway_messages.answer import Message, Usage
from gateway_messages.assembler import MessageAssembler
from gateway_messages.events import MessageEventWriter
from gateway_messages.message import MessageBodyWriter
from gateway_messages.signatures import DigestSigner
from gateway_messages.stream_events import MessageEvent
from tests.plugins.messages.messages_grammar import GrammarError, fold_events, parse_events

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)


def offered(item_type: Any, argument: str) -> AvailableTool:
    definition = ToolDefinition(
        name="t", parameters={"type": "object", "properties": {argument: {"type": "string"}}}
    )
    return AvailableTool(
        server_label="s", tool=ServerTool(definition=definition, item_type=item_type)
    )


SERVED = {
    "search": offered("web_search_call", "query"),
    "open": offered("web_search_call", "id"),
    "python": offered("code_interpreter_call", "code"),
    "shell": offered("shell_call", "commands"),
    "add": offered("mcp_call", "a"),
}
SOURCES = [Source(cursor=0, url="https://a.example", title="A", lines=(0, 9))]
FILES = [FileSource(mark="1:0", file_id="file_1")]
OUTCOMES = st.sampled_from(
    [
        ToolResult(text="[0] A\nL1: one\nL2: two", sources=SOURCES, files=FILES),
        ToolResult(text="nothing"),
        ToolResult(text="bad", failed=True),
        *(
            ToolResult(text="bad", failed=True, fault=fault)
            for fault in ("arguments", "unavailable", "time_limit", "max_uses")
        ),
    ]
)
TEXT = st.lists(
    st.sampled_from(
        ["word", " ", "【", "【0†L1】", "【0†L1-L2】", "【1:0†x】", "【7†L1】", "\n\n", "é"]
    ),
    min_size=1,
    max_size=6,
).map("".join)
ARGUMENTS = st.sampled_from(
    ["", "{}", '{"query": "é"}', '{"code": "1 + \\n1"}', '{"commands": ["ls", "pwd"]}', "1 + 1",
     '{"id": "https://a.example"}', '{"id": 3}', "[1]", '{"a": ']
)  # fmt: skip
BLOCKS = st.one_of(
    st.tuples(st.just("text"), TEXT),
    st.tuples(st.just("thinking"), TEXT),
    st.tuples(st.sampled_from([*SERVED, "client"]), ARGUMENTS),
)
TURNS = st.lists(st.lists(BLOCKS, max_size=4), min_size=1, max_size=3)


def deltas_of(blocks: Sequence[tuple[str, str]], size: int) -> list[Delta]:
    made: list[Delta] = []
    for kind, text in blocks:
        parts = [text[i : i + size] for i in range(0, len(text), size)]
        if kind == "text":
            made += [TextDelta(part) for part in parts]
        elif kind == "thinking":
            made += [ReasoningDelta(part) for part in parts]
            made.append(BlockEnded())
        else:
            made += [CallStarted(kind), *map(CallArgumentsDelta, parts), CallEnded()]
    return made


def answered(
    writer: Any, turns: Sequence[Any], results: Sequence[ToolResult], size: int, *, cut: bool
) -> bytes:
    count = itertools.count()
    made = MessageAssembler(
        writer,
        new_id=lambda prefix: f"{prefix}{next(count)}",
        new_signer=DigestSigner,
        served=SERVED,
        seal=lambda text: f"sealed {text}",
    )
    given = itertools.cycle(results)
    out = []
    for number, blocks in enumerate(turns):
        deltas = deltas_of(blocks, size)
        is_cut = cut and number == len(turns) - 1
        if is_cut:
            deltas += [CallStarted("python"), CallArgumentsDelta('{"code": "1 +')]
        out += [made.feed([delta]) for delta in deltas[:-1]]
        out.append(made.end(deltas[-1:], "length" if is_cut else "stop"))
        calls = [kind for kind, _ in blocks if kind in SERVED]
        if not is_cut:
            out += [made.called(next(given)) for _ in calls]
    usage = GatewayUsage(input_tokens=3, output_tokens=4, total_tokens=7)
    outcome = Outcome(
        reason="length" if cut else "stop", stop_reason=None, usage=usage, context_full=False
    )
    return b"".join([*out, made.finish(outcome)])


def begun() -> Message:
    return Message(id="msg_1", model="m", usage=Usage(input_tokens=3, output_tokens=0))


@given(TURNS, st.lists(OUTCOMES, min_size=1, max_size=4), st.sampled_from([1, 2, 5]), st.booleans())
def test_a_stream_of_any_cutting_is_by_the_grammar_and_adds_up_to_the_plain_answer(
    turns: list[Any], results: list[ToolResult], size: int, cut: bool
) -> None:
    body = answered(MessageEventWriter(begun(), "req_1"), turns, results, size, cut=cut)
    events = parse_events(body)
    for event in events:
        if event["type"] != "ping":
            SDK_EVENT.validate_python(event)
        assert msgspec.to_builtins(msgspec.convert(event, MessageEvent, strict=True)) == event
    folded = fold_events(events)
    whole = answered(MessageBodyWriter(begun()), turns, results, 1000, cut=cut)
    assert folded == json.loads(whole)


@given(TURNS, st.sampled_from([1, 3, 1000]))
def test_no_mark_that_a_tool_has_taught_is_left_in_the_text(turns: list[Any], size: int) -> None:
    found = ToolResult(text="L1: one", sources=SOURCES, files=FILES)
    turns = [[("search", "{}")], *turns]
    message = json.loads(answered(MessageBodyWriter(begun()), turns, [found], size, cut=False))
    texts = [block for block in message["content"] if block["type"] == "text"]
    said = "".join(text for blocks in turns for kind, text in blocks if kind == "text")
    for mark in ("【0†L1】", "【0†L1-L2】", "【1:0†x】"):
        assert mark not in "".join(block["text"] for block in texts)
        said = said.replace(mark, "")
    told = "".join(block["text"] for block in texts)
    assert told.replace(" ", "") == said.replace(" ", "")
    assert all(block["text"] for block in texts)


def test_the_grammar_knows_an_answer_to_no_call() -> None:
    body = answered(
        MessageEventWriter(begun(), "r"), [[("add", "{}")]], [ToolResult(text="x")], 9, cut=False
    )
    with pytest.raises(GrammarError, match="an answer to no call"):
        fold_events(parse_events(body.replace(b'"tool_use_id":"mcp', b'"tool_use_id":"other')))
