"""Connections: kept, used again, closed to abort, not read when nobody reads; and what comes instead of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from gateway.base.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
)
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_remote.connection import ReplicaConnection
from gateway_remote.stalls import StallMonitor
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[list[Any]]]


def request(number: int = 1, tokens: int = 4, **more: Any) -> EngineRequest:
    return EngineRequest(
        request_id=f"r{number}",
        prompt=TokensPrompt(token_ids=[10]),
        sampling=Sampling(max_tokens=tokens),
        **more,
    )


@asynccontextmanager
async def engine_on(stub: Any, vocabulary: str, **options: Any) -> AsyncIterator[Any]:
    config = RemoteConfig(urls=[stub.url], tokenizer=vocabulary, **options)
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        yield engine


async def read(engine: Any, asked: EngineRequest) -> list[int]:
    return [token async for output in engine.generate(asked) for token in output.token_ids]


async def test_connections_are_used_again(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary, health_interval=60.0) as engine:
        for number in range(20):
            assert await read(engine, request(number)) == [11, 12, 13, 14]
        assert engine._dispatcher._client.connections_opened <= 2


async def test_closing_the_generator_aborts_the_request_in_the_server(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    stub.delay = 0.01
    async with engine_on(stub, vocabulary) as engine:
        async with aclosing(engine.generate(request(tokens=10_000))) as outputs:
            await anext(outputs)
            assert stub.active == 1
        await wait_until_async(lambda: stub.aborted == ["r1"] and not stub.active)
        assert await read(engine, request(2)) == [11, 12, 13, 14]


async def test_cancelling_before_the_first_token_aborts_too(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    stub.delay = 600.0
    async with engine_on(stub, vocabulary) as engine:
        task = asyncio.create_task(read(engine, request()))
        await wait_until_async(lambda: stub.active == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until_async(lambda: stub.aborted == ["r1"])
        assert [row["abandoned"] for row in engine.describe()] == [1]


async def test_what_is_ready_at_once_is_one_output(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary) as engine:
        client = engine._dispatcher._client
        async with aclosing(engine.generate(request(tokens=200))) as outputs:
            first = await anext(outputs)
            await wait_until_async(
                lambda: stub.completed and all(each.complete for each in client._open)
            )
            rest = [output async for output in outputs]
        assert len(first.token_ids) + sum(len(output.token_ids) for output in rest) == 200
        assert len(rest) <= 2


async def test_a_stream_that_nobody_reads_is_not_taken_in(stubs: Start, vocabulary: str) -> None:
    """The server is held up: far less than it has is read, and all of it comes later."""
    (stub,) = await stubs(1)
    stub.tokens_at_once = 5000
    tokens = 4_000_000
    async with engine_on(stub, vocabulary) as engine:
        async with aclosing(engine.generate(request(tokens=90_000))) as outputs:
            count = len((await anext(outputs)).token_ids)
            count += sum([len(output.token_ids) async for output in outputs])
            assert count == 90_000
        asked = request(2, tokens=90_000)
        stub.bodies.clear()
        original = stub._answer

        async def endless(web_request: Any, body: dict[str, Any]) -> Any:
            return await original(web_request, body | {"max_tokens": tokens})

        stub._answer = endless
        async with aclosing(engine.generate(asked)) as outputs:
            await anext(outputs)
            (connection,) = [each for each in engine._dispatcher._client._open if not each.complete]
            await wait_until_async(lambda: connection._size > 0)
            await asyncio.sleep(0.5)
            assert 0 < connection._size < 2 * 128 * 1024 + 400_000
            assert stub.active == 1


async def test_an_idle_connection_that_the_server_closed_costs_nothing(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary, health_interval=60.0) as engine:
        await read(engine, request())
        await stub.stop()
        await stub.start()
        assert await read(engine, request(2)) == [11, 12, 13, 14]
        assert [row["failed"] for row in engine.describe()] == [0]


async def test_a_silent_stream_fails_and_a_slow_reader_does_not(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary, stall_timeout=600.0) as engine:
        watch = engine._dispatcher._client._watch
        clock = watch._clock

        def pass_hours(hours: int) -> None:
            watch._clock = lambda: clock() + 3600 * hours
            watch.end_stalled()

        async with aclosing(engine.generate(request(tokens=50))) as outputs:
            count = len((await anext(outputs)).token_ids)
            pass_hours(1)
            count += sum([len(output.token_ids) async for output in outputs])
            assert count == 50
        stub.mode = "stall"
        reading = asyncio.create_task(read(engine, request(2, tokens=50)))
        await wait_until_async(lambda: any(each.waiting_since for each in watch._streams))
        pass_hours(2)
        with pytest.raises(EngineError, match="silent"):
            await reading


def test_the_watch_ends_only_what_is_waited_for() -> None:
    class Stream:
        def __init__(self, since: float | None) -> None:
            self.waiting_since = since
            self.stalled = False

        def stall(self) -> None:
            self.stalled = True

    now = [0.0]
    watch = StallMonitor(5.0, lambda: now[0])
    streams = [Stream(0.0), Stream(3.0), Stream(None)]
    for stream in streams:
        watch.add(stream)
    now[0] = 6.0
    watch.end_stalled()
    assert [stream.stalled for stream in streams] == [True, False, False]
    assert len(watch) == 2


async def test_a_refusal_is_the_clients_with_the_gateways_name_of_the_parameter(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary) as engine:
        stub.mode = "refuse"
        with pytest.raises(InvalidRequest, match="top_p is odd") as caught:
            await read(engine, request())
        assert caught.value.param == "top_p"
        assert [row["status"] for row in engine.describe()] == ["up"]


async def test_a_busy_engine_is_429_with_its_own_time(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary) as engine:
        stub.mode = "busy"
        with pytest.raises(RateLimited) as caught:
            await read(engine, request())
        assert caught.value.headers["retry-after"] == "1"


async def test_an_engine_that_fails_without_a_token_is_unavailable(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary) as engine:
        for mode in ("error", "garbage"):
            stub.mode = mode
            with pytest.raises(EngineUnavailable):
                await read(engine, request())


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"",
        b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_something_that_is_no_inference_server_is_a_sentence(
    answer: bytes, vocabulary: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        config = RemoteConfig(
            urls=[f"http://127.0.0.1:{port}"], tokenizer=vocabulary, start_timeout=0.0
        )
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}"):
            async with open_remote(config, EngineContext(name="m", path=None)):
                pass


async def test_a_clients_header_cannot_add_headers(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    async with engine_on(stub, vocabulary) as engine:
        evil = {"traceparent": "00-a\r\nX-Evil: yes\r\n\r\nGET / HTTP/1.1"}
        assert await read(engine, request(trace_headers=evil)) == [11, 12, 13, 14]
        assert len(stub.started) == 1


async def test_leaving_closes_streams_and_connections(stubs: Start, vocabulary: str) -> None:
    (stub,) = await stubs(1)
    stub.delay = 0.01
    async with engine_on(stub, vocabulary) as engine:
        outputs = engine.generate(request(tokens=10_000))
        await anext(outputs)
    with pytest.raises(EngineError):
        async for _ in outputs:
            pass
    await wait_until_async(lambda: stub.active == 0)
    with pytest.raises(EngineUnavailable):
        await read(engine, request(2))


@pytest.mark.anyio
async def test_what_arrives_may_cancel_its_reader() -> None:
    """As where a background run's log refuses an event that was pushed."""

    class Sent:
        """A transport of which only the writing side is needed."""

        def write(self, data: bytes) -> None:
            return

    connection = ReplicaConnection()
    connection.connection_made(Sent())
    connection.send(b"GET / HTTP/1.1\r\n\r\n")

    def arrived() -> bool:
        task.cancel()
        return False

    async def read() -> None:
        await connection.changed(arrived)

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
    with pytest.raises(asyncio.CancelledError):
        await task
