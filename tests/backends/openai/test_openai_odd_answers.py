"""Upstreams that refuse in their own ways, answer a stream with the whole, or compress what they were asked not to."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from aiohttp import web

from gateway.base.deltas import (
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    ReasoningDelta,
    TextDelta,
)
from gateway.base.errors import EngineUnavailable, InvalidRequest, RateLimited

pytestmark = pytest.mark.anyio
QUICK: dict[str, Any] = {"wait_for_replica": 0.2, "health_path": ""}
SAID = {"error": {"message": "Not like this.", "code": "odd"}}
USED = {"prompt_tokens": 7, "completion_tokens": 5}


async def two(stub: Any) -> Any:
    other = type(stub)()
    await other.start()
    return other


@pytest.mark.parametrize("status", [405, 406, 409, 411, 415, 418, 431, 451])
async def test_a_refusal_of_the_request_is_the_clients_and_is_asked_once(
    stub: Any, asker: Any, status: int
) -> None:
    other = await two(stub)
    for each in (stub, other):
        each.refuses(status, SAID)
    try:
        async with asker.open(stub, other, **QUICK):
            with pytest.raises(InvalidRequest, match="Not like this") as caught:
                await asker.ask()
    finally:
        await other.close()
    assert (caught.value.status, caught.value.code) == (400, "odd")
    assert len(stub.bodies) + len(other.bodies) == 1


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_what_only_the_operator_can_mend_is_not_sent_again(
    stub: Any, asker: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    other = await two(stub)
    for each in (stub, other):
        each.refuses(status, {"error": {"message": "Insufficient credits."}})
    try:
        async with asker.open(stub, other, **QUICK) as engine:
            with pytest.raises(EngineUnavailable) as caught:
                await asker.ask()
            await engine.health()
    finally:
        await other.close()
    error = caught.value
    assert (error.status, error.code) == (503, "upstream_refused")
    assert error.headers == {"x-should-retry": "false"}
    assert "Insufficient" not in error.message
    assert f"refuses the gateway itself ({status}): Insufficient credits" in caplog.text
    assert len(stub.bodies) + len(other.bodies) == 1


async def test_a_moderated_request_is_refused_with_its_reason(stub: Any, asker: Any) -> None:
    stub.refuses(403, {"error": {"message": "Your input was flagged.", "code": 403}})
    async with asker.open(stub, **QUICK):
        with pytest.raises(InvalidRequest, match="flagged"):
            await asker.ask()


@pytest.mark.parametrize("status", [408, 424, 425, 500, 529])
async def test_a_failure_of_the_server_is_tried_on_another_replica(
    stub: Any, asker: Any, status: int
) -> None:
    other = await two(stub)
    stub.refuses(status, SAID)
    other.says(other.chunk(content="Yes"), other.chunk("stop"), other.done)
    try:
        async with asker.open(stub, other, choice="least_loaded", **QUICK):
            while not stub.bodies:  # equally loaded replicas are chosen at random
                assert await asker.deltas() == [TextDelta("Yes")]
    finally:
        await other.close()


async def test_a_whole_chat_completion_is_read(stub: Any, asker: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Yes",
        "tool_calls": [call],
    }
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USED}
    for text in (json.dumps(whole), json.dumps(whole, indent=1) + "\n"):
        stub.refuses(200, text)
        async with asker.open(stub, **QUICK):
            assert await asker.deltas() == [
                ReasoningDelta("Hm."),
                TextDelta("Yes"),
                CallStarted("f", "c"),
                CallArgumentsDelta("{}"),
                CallEnded(),
            ]
            last = (await asker.ask())[-1]
        assert (last.finish_reason, last.prompt_tokens, last.output_tokens) == ("stop", 7, 5)


async def test_a_whole_response_is_read(stub: Any, asker: Any) -> None:
    text = {"type": "output_text", "text": "Yes", "annotations": []}
    whole = {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": [
            {"type": "message", "role": "assistant", "content": [text]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }
    stub.refuses(200, whole)
    async with asker.open(stub, api="responses", **QUICK):
        deltas = await asker.deltas()
        last = (await asker.ask())[-1]
    assert deltas == [
        TextDelta("Yes"),
        CallStarted("f", "c"),
        CallArgumentsDelta("{}"),
        CallEnded(),
    ]
    assert (last.finish_reason, last.prompt_tokens, last.output_tokens) == ("stop", 7, 5)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_error_with_the_status_200_is_an_error(stub: Any, asker: Any, api: str) -> None:
    limited = {"error": {"message": "Slow down.", "type": "rate_limit_error"}}
    stub.refuses(200, limited | ({"object": "response"} if api == "responses" else {}))
    async with asker.open(stub, api=api, **QUICK):
        with pytest.raises(RateLimited):
            await asker.ask()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("status", [200, 400])
async def test_what_is_compressed_all_the_same_is_read(
    stub: Any, asker: Any, encoding: str, status: int
) -> None:
    plain = (
        stub.encoded(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage) + stub.done
        if status == 200
        else json.dumps(SAID).encode()
    )
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=packed, headers={"content-encoding": encoding})

    stub.answer = answer
    async with asker.open(stub, **QUICK):
        if status == 200:
            assert await asker.deltas() == [TextDelta("Yes")]
        else:
            with pytest.raises(InvalidRequest, match="Not like this"):
                await asker.ask()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"\x0b\x02\x80data"),
        ("gzip", b"data: {}\n\n"),
        ("gzip", gzip.compress(b"\x00" * 2**26)),
    ],
    ids=["unknown", "not what it says", "a bomb"],
)
async def test_what_cannot_be_unpacked_is_a_failure(
    stub: Any, asker: Any, encoding: str, body: bytes
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"content-encoding": encoding})

    stub.answer = answer
    async with asker.open(stub, **QUICK):
        with pytest.raises(EngineUnavailable):
            await asker.ask()


@pytest.mark.parametrize("status", [408, 425, 500, 503, 529])
@pytest.mark.parametrize(
    ("wanted", "told"),
    [("7", "7"), ("2.5", "3"), ("0", "1"), ("-5", "1"), ("86400", "60"), ("soon", "1"), ("nan", "1"),
     ("Wed, 21 Oct 2015 07:28:00 GMT", "1"), ("Wed, 21 Oct 2065 07:28:00 GMT", "60"), (None, "1")],
)  # fmt: skip
async def test_the_wait_that_a_failing_upstream_asks_for_is_told(
    stub: Any, asker: Any, status: int, wanted: str | None, told: str
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        headers = {} if wanted is None else {"retry-after": wanted}
        return web.json_response(SAID, status=status, headers=headers)

    stub.answer = answer
    async with asker.open(stub, **QUICK):
        with pytest.raises(EngineUnavailable) as caught:
            await asker.ask()
    assert caught.value.headers == {"retry-after": told}
