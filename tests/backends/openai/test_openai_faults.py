"""Upstreams that hang, die, talk nonsense or refuse: what the client is told, what is tried again, what is left over."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import pytest

from gateway.base.deltas import CallArgumentsDelta, CallEnded, CallStarted, TextDelta
from gateway.base.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
)
from gateway.plugins.protocols import ToolDefinition, Turn
from gateway.wire.item_decoding import decode_items
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
PATIENT: dict[str, Any] = {
    "connect_timeout": 60.0,
    "first_token_timeout": 60.0,
    "stall_timeout": 60.0,
    "wait_for_replica": 0.2,
    "health_interval": 60.0,
}
"""For upstreams that answer, on however slow a machine."""


async def failure(stub: Any, asker: Any, kind: type[GatewayError], **config: Any) -> Any:
    async with asker.open(stub, **{**PATIENT, **config}) as engine:
        with pytest.raises(kind) as raised:
            await asker.ask()
        assert all(replica.running == 0 for replica in engine._pool.replicas)
        assert len(engine._dispatcher._client._watch) == 0
    assert type(raised.value) is kind
    assert str(stub.port) not in raised.value.message
    return raised.value


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, InvalidRequest), (404, NotFound), (413, PayloadTooLarge), (422, InvalidRequest)],
)
async def test_a_refusal_has_the_upstreams_words_and_status(
    stub: Any, asker: Any, status: int, kind: type[GatewayError]
) -> None:
    told = {"message": "No such thing.", "param": "top_p", "code": "odd", "type": "invalid"}
    stub.refuses(status, {"error": told})
    error = await failure(stub, asker, kind)
    assert (error.message, error.param, error.code) == ("No such thing.", "top_p", "odd")
    assert len(stub.bodies) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("messages[0].content", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema", "text.format"),
        ("tools[0].function.name", "tools[0].function.name"),
        (None, None),
    ],
)
async def test_parameters_go_by_the_gateways_names(
    stub: Any, asker: Any, theirs: str | None, ours: str | None
) -> None:
    stub.refuses(400, {"error": {"message": "Odd.", "param": theirs}})
    assert (await failure(stub, asker, InvalidRequest)).param == ours


@pytest.mark.parametrize(
    "told",
    [
        {"message": "Too long.", "code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 10 tokens."},
    ],
)
async def test_a_prompt_that_is_too_long_is_known_as_that(
    stub: Any, asker: Any, told: dict[str, str]
) -> None:
    stub.refuses(400, {"error": told})
    error = await failure(stub, asker, InvalidRequest)
    assert (error.param, error.code) == ("input", "context_length_exceeded")


@pytest.mark.parametrize("body", ["<html>nginx at 10.0.0.1</html>", "", "[]"])
async def test_a_body_that_is_no_error_object_is_not_passed_on(
    stub: Any, asker: Any, body: str
) -> None:
    stub.refuses(404, body)
    error = await failure(stub, asker, NotFound)
    assert error.message == "The upstream server refused the request (404)."


@pytest.mark.parametrize(
    "body", [{"detail": "Not so."}, {"message": "Not so."}, {"error": "Not so."}]
)
async def test_other_shapes_of_errors_are_read(stub: Any, asker: Any, body: Any) -> None:
    stub.refuses(400, body)
    assert (await failure(stub, asker, InvalidRequest)).message == "Not so."


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_the_operators_business(
    stub: Any, asker: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    stub.refuses(status, {"error": {"message": "Incorrect API key: sk-very-secret."}})
    with caplog.at_level(logging.INFO):
        error = await failure(stub, asker, EngineUnavailable, api_key="sk-very-secret")
    assert "key" not in error.message
    assert f"the upstream refuses the gateway itself ({status})" in caplog.text
    assert "sk-very-secret" not in caplog.text
    assert stub.headers[-1]["authorization"] == "Bearer sk-very-secret"


async def test_what_upstreams_say_names_neither_them_nor_the_key(stub: Any, asker: Any) -> None:
    said = f"Ask 127.0.0.1:{stub.port} with sk-very-secret and hunter22."
    stub.refuses(400, {"error": {"message": said}})
    error = await failure(
        stub, asker, InvalidRequest, api_key="sk-very-secret", headers={"x-key": "hunter22"}
    )
    assert error.message == "Ask … with … and …."


async def test_a_limit_comes_with_its_time_and_holds_for_others(stub: Any, asker: Any) -> None:
    stub.refuses(429, {"error": {"message": "Slow down."}}, **{"retry-after": "7"})
    async with asker.open(stub, **PATIENT) as engine:
        with pytest.raises(RateLimited) as raised:
            await asker.ask()
        assert raised.value.headers == {"retry-after": "7"}
        with pytest.raises(RateLimited):
            await asker.ask()
        assert len(stub.bodies) == 1, "the upstream asked to be left alone"
        await engine.health()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_an_upstream_that_is_down_is_a_503(stub: Any, asker: Any, status: int) -> None:
    stub.refuses(status, {"error": {"message": "CUDA error"}})
    error = await failure(stub, asker, EngineUnavailable)
    assert "CUDA" not in error.message


async def test_an_upstream_that_is_not_there_is_a_503_and_no_obstacle_to_the_start(
    stub: Any, asker: Any
) -> None:
    await stub.stop()
    await failure(stub, asker, EngineUnavailable)


async def test_a_key_that_is_refused_stops_the_start(stub: Any, asker: Any) -> None:
    async def refuse(_request: Any) -> Any:
        return stub_response

    from aiohttp import web

    stub_response = web.json_response({}, status=401)
    stub._models = refuse
    await stub.stop()
    await stub.start()
    with pytest.raises(ConfigurationError, match="refuses the gateway"):
        async with asker.open(stub):
            pass


async def test_silence_before_the_first_token_is_a_503(stub: Any, asker: Any) -> None:
    await failure(stub, asker, EngineUnavailable, first_token_timeout=0.4)
    stub.says(stub.chunk(role="assistant", content=""), then="hang")
    await failure(stub, asker, EngineUnavailable, first_token_timeout=0.4)


@pytest.mark.parametrize("then", ["hang", "die", "end"])
async def test_what_breaks_after_the_first_token_is_a_500(stub: Any, asker: Any, then: str) -> None:
    stub.says(stub.chunk(content="It begins"), then=then)
    error = await failure(stub, asker, EngineError, stall_timeout=0.4)
    assert error.message == "The engine failed in the middle of its output."


@pytest.mark.parametrize(
    "garbage",
    [b"data: {broken\n\n", b"data: [1, 2]\n\n", b"\x00\xff{]\n\n", b"<html></html>"],
)
@pytest.mark.parametrize("begun", [True, False])
async def test_nonsense_is_a_clear_error(
    stub: Any, asker: Any, garbage: bytes, *, begun: bool
) -> None:
    stub.says(*([stub.chunk(content="x")] if begun else []), garbage)
    await failure(stub, asker, EngineError if begun else EngineUnavailable)


async def test_what_is_no_data_is_passed_over(stub: Any, asker: Any) -> None:
    odd = [b": ping\r\n\r\n", b"event: chunk\r\nid: 7\r\ndata: {}\r\n\r\n", b"retry: 5\n\n"]
    stub.says(*odd, stub.chunk(content="Yes"), *odd, stub.chunk("stop"), *odd, stub.done)
    async with asker.open(stub):
        assert await asker.deltas() == [TextDelta("Yes")]


async def test_an_event_of_any_size_is_refused_beyond_a_bound(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(content="x"), b"data: " + b"x" * (17 * 2**20))
    await failure(stub, asker, EngineError)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"message": "Odd.", "type": "invalid_request_error"}, InvalidRequest),
        ({"message": "Odd.", "code": 400}, InvalidRequest),
        ({"message": "Boom.", "type": "server_error"}, EngineUnavailable),
        ("Boom.", EngineUnavailable),
        ({"message": "Slow down.", "type": "rate_limit_error"}, RateLimited),
    ],
)
async def test_an_error_in_the_stream_means_the_same(
    stub: Any, asker: Any, told: Any, kind: type[GatewayError]
) -> None:
    stub.says({"error": told})
    await failure(stub, asker, kind)


async def test_without_done_the_end_of_the_answer_is_the_end(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(content="Yes"), stub.chunk("stop"))
    async with asker.open(stub):
        assert (await asker.ask())[-1].finish_reason == "stop"


@pytest.mark.parametrize("together", [True, False], ids=["one write", "several"])
@pytest.mark.parametrize("usage", ["own chunk", "in the last chunk"])
async def test_an_answer_ends_when_its_finish_reason_and_usage_are_there(
    stub: Any, asker: Any, usage: str, *, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream sends no [DONE] and leaves the connection open."""
    monkeypatch.setattr("gateway_remote.generation.END_WITHIN", 50.0)
    counts = {"usage": stub.usage["usage"]}
    last = stub.chunk("stop") | (counts if usage == "in the last chunk" else {})
    events = [stub.chunk(role="assistant"), stub.chunk(content="Yes"), last]
    if usage == "own chunk":
        events.append(stub.usage)
    stub.says(*([stub.encoded(*events)] if together else events), then="hang")
    async with asker.open(stub, **PATIENT), asyncio.timeout(20):
        outputs = await asker.ask()
    assert (outputs[-1].finish_reason, outputs[-1].output_tokens) == ("stop", 5)
    assert outputs[-1].prompt_tokens == 7


@pytest.mark.parametrize("comments", [True, False])
async def test_without_usage_the_text_comes_at_once_and_the_end_after_a_second(
    stub: Any, asker: Any, *, comments: bool
) -> None:
    begun = stub.encoded(stub.chunk(content="Yes"), stub.chunk("stop"))
    pings = [b": still here\n\n"] * 40 if comments else []
    stub.says(begun, *pings, pause=0.1, then="hang")
    async with asker.open(stub, **PATIENT), asyncio.timeout(20):
        outputs = await asker.ask()
    assert outputs[0].deltas == [TextDelta("Yes")]
    assert outputs[0].finish_reason is None, "the text does not wait for the end"
    assert (outputs[-1].finish_reason, outputs[-1].deltas) == ("stop", [])


async def test_only_a_call_after_which_a_reader_stops_waits_for_the_counts(
    stub: Any, asker: Any
) -> None:
    tool = ToolDefinition(name="f", parameters={"type": "object"})
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    stub.says(
        stub.encoded(
            stub.chunk(content="Look."), stub.chunk(tool_calls=[call]), stub.chunk("tool_calls")
        ),
        then="hang",
    )
    for parallel in (True, False):
        turn = Turn(items=decode_items("Hi"), tools=[tool], parallel_tool_calls=parallel)
        async with asker.open(stub, **PATIENT), asyncio.timeout(20):
            outputs = await asker.ask(turn)
        first = [TextDelta("Look."), CallStarted("f", "c"), CallArgumentsDelta("{}")]
        assert outputs[0].deltas == first + [CallEnded()] * parallel
        assert outputs[-1].deltas == [CallEnded()] * (not parallel)
        assert outputs[-1].finish_reason == "stop"


async def test_a_response_ends_with_its_last_event(stub: Any, asker: Any) -> None:
    text = {"type": "response.output_text.delta", "output_index": 0, "delta": "Yes"}
    used = {"input_tokens": 7, "output_tokens": 5}
    end = {"type": "response.completed", "response": {"status": "completed", "usage": used}}
    stub.says(text, end, then="hang")
    async with asker.open(stub, api="responses", **PATIENT), asyncio.timeout(20):
        outputs = await asker.ask()
    assert (outputs[-1].finish_reason, outputs[-1].output_tokens) == ("stop", 5)


async def test_a_later_report_takes_no_count_back(stub: Any, asker: Any) -> None:
    nothing: list[Any] = [
        {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}},
        {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 0}}},
        {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens_details": {}}},
    ]
    stub.says(
        stub.encoded(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage, *nothing),
        stub.done,
    )
    async with asker.open(stub, **PATIENT):
        last = (await asker.ask())[-1]
    assert (last.prompt_tokens, last.output_tokens) == (7, 5)
    assert (last.cached_tokens, last.reasoning_tokens) == (4, 2)


async def test_a_report_before_more_text_is_no_count_of_the_output(stub: Any, asker: Any) -> None:
    first = stub.chunk(content="A") | {"usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    stub.says(first, stub.chunk(content=" long answer"), stub.chunk("stop"), stub.done)
    async with asker.open(stub, **PATIENT):
        last = (await asker.ask())[-1]
    assert (last.prompt_tokens, last.output_tokens) == (7, 0)


async def test_another_replica_takes_over_before_the_first_token_and_not_after(
    stub: Any, asker: Any
) -> None:
    other = type(stub)()
    await other.start()
    other.says(other.chunk(content="Yes"), other.chunk("stop"), other.done)
    try:
        async with asker.open(
            stub, other, choice="least_loaded", breaker_seconds=600.0, **PATIENT
        ) as engine:
            stub.refuses(500, {})
            while not stub.bodies:  # equally loaded replicas are chosen at random
                assert await asker.deltas() == [TextDelta("Yes")]
            for _ in range(12):
                assert await asker.deltas() == [TextDelta("Yes")]
            assert len(stub.bodies) == 3, "the breaker opens"
            assert engine.metrics()
            assert {row["status"] for row in engine.describe()} <= {"up", "open", "half_open"}
    finally:
        await other.close()


async def test_closing_the_generator_closes_the_request(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(content="x"), then="hang")
    async with asker.open(stub):
        async with aclosing(asker.engine.generate(asker.request())) as outputs:
            await anext(outputs)
            assert stub.running == 1
        await wait_until_async(lambda: not stub.running)
    assert (stub.running, stub.aborted) == (0, 1)


async def test_a_reader_that_stops_at_the_end_leaves_a_connection_to_be_used_again(
    stub: Any, asker: Any
) -> None:
    """As the gateway does. The [DONE] comes after the usage, which is the end of the answer."""
    stub.says(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage, stub.done, pause=0.01)
    async with asker.open(stub, health_path="") as engine:
        client = engine._dispatcher._client
        for _ in range(5):
            async with aclosing(asker.engine.generate(asker.request())) as outputs:
                async for output in outputs:
                    if output.finish_reason is not None:
                        break
            await wait_until_async(lambda: not client._ending)
        assert client.connections_opened == 1
        assert stub.aborted == 0


async def test_connections_are_used_again(stub: Any, asker: Any) -> None:
    stub.says(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage, stub.done)
    async with asker.open(stub, health_path="") as engine:
        for _ in range(5):
            await asker.ask()
        assert engine._dispatcher._client.connections_opened == 1
