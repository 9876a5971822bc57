"""What servers send as Responses events, as deltas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    EncryptedReasoning,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.base.errors import EngineUnavailable, GatewayError, InvalidRequest, RateLimited
from gateway.plugins.protocols import Sampling, ToolDefinition, Turn

pytestmark = pytest.mark.anyio
TURN = Turn(items=[], tools=[ToolDefinition(name="f")])


def event(kind: str, index: int = 0, **told: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **told}


def added(index: int = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.added", index, item=item)


def done(index: int = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.done", index, item=item)


def over(status: str = "completed", **told: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 7,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    return event(status, response={"status": status, "usage": usage, **told})


async def said(stub: Any, asker: Any, *events: Any, turn: Turn = TURN) -> list[Any]:
    stub.says(*events)
    async with asker.open(stub, api="responses"):
        return await asker.deltas(turn)  # type: ignore[no-any-return]


async def test_messages_with_phases_and_refusals(stub: Any, asker: Any) -> None:
    assert await said(
        stub,
        asker,
        event("created", response={"status": "in_progress"}),
        added(0, type="message", phase="commentary"),
        event("output_text.delta", 0, delta="I "),
        event("output_text.delta", 0, delta="look."),
        done(0, type="message", content=[{"type": "output_text", "text": "I look."}]),
        added(1, type="message", phase="final_answer"),
        event("refusal.delta", 1, delta="No."),
        added(2, type="message"),
        event("output_text.delta", 2, delta="But"),
        over(),
    ) == [
        MessageStarted("commentary"), TextDelta("I look."),
        MessageStarted("final_answer"), RefusalDelta("No."),
        BlockEnded(), TextDelta("But"),
    ]  # fmt: skip


async def test_reasoning_is_its_text_and_without_one_its_summary(stub: Any, asker: Any) -> None:
    assert await said(
        stub,
        asker,
        added(0, type="reasoning", summary=[]),
        event("reasoning_text.delta", 0, delta="Hm."),
        event("reasoning_summary_text.delta", 0, delta="Thinks."),
        done(0, type="reasoning", summary=[]),
        added(1, type="reasoning", summary=[]),
        event("reasoning_summary_part.added", 1),
        event("reasoning_summary_text.delta", 1, delta="One"),
        event("reasoning_summary_part.added", 1),
        event("reasoning_summary_text.delta", 1, delta="Two"),
        over(),
    ) == [ReasoningDelta("Hm."), BlockEnded(), ReasoningDelta("One\n\nTwo")]


@pytest.mark.parametrize("keeps", [True, False])
async def test_encrypted_reasoning_follows_its_text(stub: Any, asker: Any, keeps: bool) -> None:
    stub.says(
        added(0, type="reasoning", summary=[], encrypted_content="half"),
        event("reasoning_summary_text.delta", 0, delta="Hm."),
        done(0, type="reasoning", summary=[], encrypted_content="one"),
        added(1, type="reasoning", summary=[]),
        done(1, type="reasoning", summary=[], encrypted_content="two"),
        added(2, type="message"),
        event("output_text.delta", 2, delta="Yes"),
        over(),
    )
    takes = {"encrypted_reasoning": keeps}
    async with asker.open(stub, api="responses", takes=takes):
        told = await asker.deltas(TURN)
    encrypted = [each for each in told if isinstance(each, EncryptedReasoning)]
    assert [each.content.partition(".")[2] for each in encrypted] == (
        ["one", "two"] if keeps else []
    )
    rest = [each for each in told if not isinstance(each, EncryptedReasoning)]
    assert rest == [ReasoningDelta("Hm."), BlockEnded(), TextDelta("Yes")]
    if keeps:
        assert told.index(encrypted[0]) == 1
        assert stub.bodies[-1]["include"] == ["reasoning.encrypted_content"]


async def test_calls_that_interleave_come_one_after_the_other(stub: Any, asker: Any) -> None:
    assert await said(
        stub,
        asker,
        added(0, type="function_call", call_id="a", name="f", arguments=""),
        added(1, type="function_call", call_id="b", name="f", arguments=""),
        event("function_call_arguments.delta", 1, delta='{"y":'),
        event("function_call_arguments.delta", 0, delta='{"x": 1}'),
        event("function_call_arguments.delta", 1, delta="2}"),
        done(1, type="function_call", call_id="b", name="f", arguments='{"y":2}'),
        done(0, type="function_call", call_id="a", name="f", arguments='{"x": 1}'),
        over(),
    ) == [
        CallStarted("f", "a"), CallArgumentsDelta('{"x": 1}'), CallEnded(),
        CallStarted("f", "b"), CallArgumentsDelta('{"y":2}'), CallEnded(),
    ]  # fmt: skip


async def test_free_text_calls(stub: Any, asker: Any) -> None:
    start, arguments, end = await said(
        stub,
        asker,
        added(0, type="custom_tool_call", call_id="a", name="f", input=""),
        event("custom_tool_call_input.delta", 0, delta='say "'),
        event("custom_tool_call_input.delta", 0, delta='hi"\n'),
        done(0, type="custom_tool_call", call_id="a", name="f", input='say "hi"\n'),
        over(),
    )
    assert (start, end) == (CallStarted("f", "a"), CallEnded())
    assert json.loads(arguments.text) == {"input": 'say "hi"\n'}


async def test_what_comes_only_when_an_item_is_done(stub: Any, asker: Any) -> None:
    assert await said(
        stub,
        asker,
        done(0, type="reasoning", summary=[{"type": "summary_text", "text": "Hm."}]),
        done(1, type="message", content=[
            {"type": "output_text", "text": "Yes"}, {"type": "refusal", "refusal": "No"}]),
        done(2, type="function_call", call_id="a", name="f", arguments="{}"),
        over(),
    ) == [
        ReasoningDelta("Hm."), TextDelta("Yes"), RefusalDelta("No"),
        CallStarted("f", "a"), CallArgumentsDelta("{}"), CallEnded(),
    ]  # fmt: skip


async def test_unknown_events_and_items_are_passed_over(stub: Any, asker: Any) -> None:
    assert await said(
        stub,
        asker,
        event("audio.delta", delta={"not": "text"}),
        event("mcp_call_arguments.delta", 0, delta="{}"),
        added(0, type="web_search_call", status="in_progress"),
        done(0, type="web_search_call", action={}),
        event("output_text.delta", 1, delta="Yes"),
        over(),
    ) == [TextDelta("Yes")]


@pytest.mark.parametrize(
    ("status", "details", "finish"),
    [
        ("completed", None, "stop"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content_filter"),
    ],
)
async def test_the_end_and_the_counts(
    stub: Any, asker: Any, status: str, details: Any, finish: str
) -> None:
    stub.says(event("output_text.delta", delta="x"), over(status, incomplete_details=details))
    async with asker.open(stub, api="responses"):
        *_, last = await asker.ask(TURN)
    assert last.finish_reason == finish
    counts = (last.prompt_tokens, last.cached_tokens, last.output_tokens, last.reasoning_tokens)
    assert counts == (7, 4, 5, 2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", EngineUnavailable),
        ("invalid_prompt", InvalidRequest),
        ("rate_limit_exceeded", RateLimited),
    ],
)
@pytest.mark.parametrize("flat", [True, False])
async def test_failures(
    stub: Any, asker: Any, code: str, kind: type[GatewayError], *, flat: bool
) -> None:
    error = {"code": code, "message": "It went wrong."}
    stub.says({"type": "error", **error} if flat else event("failed", response={"error": error}))
    async with asker.open(stub, api="responses", wait_for_replica=0.2):
        with pytest.raises(kind):
            await asker.ask(TURN)


async def test_scores_come_with_their_text_however_the_text_is_cut(stub: Any, asker: Any) -> None:
    def score(*data: int) -> dict[str, Any]:
        return {"token": bytes(data).decode("utf-8", "replace"), "bytes": list(data), "logprob": -1}

    flag = "🏳️".encode()
    stub.says(
        event("output_text.delta", delta="a", logprobs=[score(97), score(*flag[:2])]),
        event("output_text.delta", delta="🏳️", logprobs=[score(*flag[2:])]),
        event("output_text.delta", delta="b", logprobs=[{"token": "b", "logprob": -2.0}]),
        over(),
    )
    async with asker.open(stub, api="responses"):
        outputs = await asker.ask(TURN, sampling=Sampling(logprobs=0))
    tokens = [token for output in outputs for token in output.logprobs or ()]
    assert b"".join(token.bytes for token in tokens).decode() == "a🏳️b"
    assert "".join(output.text for output in outputs) == "a🏳️b"
    at = 0
    for output in outputs:
        for delta in output.deltas or ():
            assert isinstance(delta, TextDelta)
            assert delta.start == at
            at += len(delta.text)


async def test_scores_of_what_is_no_text_are_left_out(stub: Any, asker: Any) -> None:
    told = [{"token": word, "logprob": -1.0} for word in ("<think>", "Yes", "<end>")]
    stub.says(event("output_text.delta", delta="Yes", logprobs=told), over())
    async with asker.open(stub, api="responses"):
        outputs = await asker.ask(TURN, sampling=Sampling(logprobs=0))
    assert [t.token for o in outputs for t in o.logprobs or ()] == ["Yes"]
