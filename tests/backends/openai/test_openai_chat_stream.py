"""What servers send as Chat Completions, as deltas: one thing after the other, whatever they interleave or leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.deltas import (
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.base.errors import EngineUnavailable
from gateway.plugins.protocols import ChatPrompt, EngineRequest, Sampling, ToolDefinition, Turn
from gateway_openai.chat_stream import ChatBuilder, read_chat
from gateway_openai.errors import Translator

pytestmark = pytest.mark.anyio
TOOLS = [ToolDefinition(name="f"), ToolDefinition(name="g")]


def call(index: int | None, **told: Any) -> dict[str, Any]:
    part: dict[str, Any] = {
        "function": {k: told.pop(k) for k in ("name", "arguments") if k in told}
    }
    return {**part, **({} if index is None else {"index": index}), **told}


async def said(stub: Any, asker: Any, *chunks: Any, **more: Any) -> list[Any]:
    stub.says(*chunks, stub.done)
    async with asker.open(stub):
        return await asker.deltas(Turn(items=[], tools=TOOLS, **more))  # type: ignore[no-any-return]


async def test_text_reasoning_and_refusals(stub: Any, asker: Any) -> None:
    chunk = stub.chunk
    assert await said(
        stub,
        asker,
        chunk(role="assistant", content=""),
        chunk(reasoning_content="Hm"),
        chunk(reasoning="."),
        chunk(content="Y"),
        chunk(content="es"),
        chunk(refusal="No"),
        chunk("stop"),
    ) == [ReasoningDelta("Hm."), TextDelta("Yes"), RefusalDelta("No")]


async def test_counts_are_the_upstreams_and_come_last(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(content="Yes"), stub.chunk("length"), stub.usage, stub.done)
    async with asker.open(stub):
        *_, last = await asker.ask()
    assert last.finish_reason == "length"
    assert (last.prompt_tokens, last.cached_tokens) == (7, 4)
    assert (last.output_tokens, last.reasoning_tokens) == (5, 2)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("error", "error"),
        ("eos", "stop"),
    ],
)
async def test_finish_reasons(stub: Any, asker: Any, theirs: str, ours: str) -> None:
    stub.says(stub.chunk(content="x"), stub.chunk(theirs))
    async with asker.open(stub):
        assert (await asker.ask())[-1].finish_reason == ours


async def test_calls_that_are_written_at_once_come_one_after_the_other(
    stub: Any, asker: Any
) -> None:
    chunk = stub.chunk
    parts = [
        call(0, id="a", name="f", arguments=""),
        call(1, id="b", name="g", arguments=""),
        call(0, arguments='{"x"'),
        call(1, arguments='{"y": '),
        call(0, arguments=": 1}"),
        call(1, arguments="2}"),
    ]
    assert await said(
        stub, asker, *(chunk(tool_calls=[part]) for part in parts), chunk("tool_calls")
    ) == [
        CallStarted("f", "a"), CallArgumentsDelta('{"x": 1}'), CallEnded(),
        CallStarted("g", "b"), CallArgumentsDelta('{"y": 2}'), CallEnded(),
    ]  # fmt: skip


async def test_calls_without_index_or_id_or_all_under_index_0(stub: Any, asker: Any) -> None:
    chunk = stub.chunk
    whole = {"name": "f", "arguments": '{"x": 1}'}
    told = [CallArgumentsDelta('{"x": 1}'), CallEnded()]
    one = await said(stub, asker, chunk(tool_calls=[call(None, **whole)]), chunk("stop"))
    assert one == [CallStarted("f"), *told]
    for index in (0, None):
        parts = [call(index, id=name, **whole) for name in "ab"]
        both = await said(stub, asker, *(chunk(tool_calls=[p]) for p in parts), chunk("stop"))
        assert both == [CallStarted("f", "a"), *told, CallStarted("f", "b"), *told]


async def test_arguments_as_an_object_and_a_name_that_comes_late(stub: Any, asker: Any) -> None:
    parts = [call(0, id="a", arguments={"x": 1}), call(0, name="f"), call(0, name="f")]
    assert await said(
        stub, asker, *(stub.chunk(tool_calls=[part]) for part in parts), stub.chunk("stop")
    ) == [CallStarted("f", "a"), CallArgumentsDelta('{"x":1}'), CallEnded()]


async def test_a_call_without_a_name_is_no_call(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(tool_calls=[call(0, id="a", arguments="{}")]), stub.chunk("stop"))
    async with asker.open(stub):
        with pytest.raises(EngineUnavailable):
            await asker.ask()


async def test_a_call_that_a_limit_cuts_off_stays_open(stub: Any, asker: Any) -> None:
    part = call(0, id="a", name="f", arguments='{"x')
    deltas = await said(stub, asker, stub.chunk(tool_calls=[part]), stub.chunk("length"))
    assert deltas == [CallStarted("f", "a"), CallArgumentsDelta('{"x')]


async def test_where_one_call_was_asked_for_there_is_one_and_the_counts_come_with_it(
    stub: Any, asker: Any
) -> None:
    parts = [call(i, id=str(i), name="f", arguments="{}") for i in range(3)]
    stub.says(stub.chunk(tool_calls=parts), stub.chunk("stop"), stub.usage, stub.done)
    async with asker.open(stub):
        outputs = await asker.ask(Turn(items=[], tools=TOOLS, parallel_tool_calls=False))
    assert [d for o in outputs for d in o.deltas if isinstance(d, CallEnded)] == [CallEnded()]
    assert outputs[-1].deltas == [CallEnded()]
    assert outputs[-1].output_tokens == 5


async def test_a_free_text_call_becomes_the_object_that_the_gateway_reads(
    stub: Any, asker: Any
) -> None:
    text = 'a "b"\n\\é😀'
    parts = [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": piece}}
        for piece in ("", *text)
    ]
    start, arguments, end = await said(
        stub, asker, *(stub.chunk(tool_calls=[part]) for part in parts), stub.chunk("stop")
    )
    assert (start, end) == (CallStarted("f", "a"), CallEnded())
    assert json.loads(arguments.text) == {"input": text}


NAMES = st.sampled_from(["f", "g"])
OBJECTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=6), max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_however_calls_are_cut_and_interleaved_they_are_the_same(data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.tuples(NAMES, OBJECTS), min_size=1, max_size=4))
    queues: list[list[dict[str, Any]]] = []
    for index, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        first = call(index, id=f"c{index}", name=name, arguments="")
        queues.append([first, *(call(index, arguments=piece) for piece in pieces)])
    request = EngineRequest(request_id="r", prompt=ChatPrompt(messages=[]), sampling=Sampling())
    builder = ChatBuilder(request, Translator([]), ["reasoning_content"])
    deltas: list[Any] = []
    begun = 0
    while any(queues):
        # A call begins after those before it, as an index says.
        ready = [i for i, queue in enumerate(queues) if queue and i <= begun]
        index = data.draw(st.sampled_from(ready or [begun]))
        begun = max(begun, index + 1)
        chunk = {"choices": [{"delta": {"tool_calls": [queues[index].pop(0)]}}]}
        read_chat(json.dumps(chunk).encode(), builder)
        if (output := builder.take()) is not None:
            deltas += output.deltas or ()
    read_chat(b'{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}', builder)
    builder.complete = True
    last = builder.take()
    assert last is not None
    assert last.finish_reason == "stop"
    deltas += last.deltas or ()
    found: list[tuple[str, str]] = []
    for delta in deltas:
        match delta:
            case CallStarted(name):
                found.append((name, ""))
            case CallArgumentsDelta(text):
                found[-1] = (found[-1][0], found[-1][1] + text)
    assert [(name, json.loads(text)) for name, text in found] == calls
    assert sum(isinstance(delta, CallEnded) for delta in deltas) == len(calls)
