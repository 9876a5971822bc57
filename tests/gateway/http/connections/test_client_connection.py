"""Chunks past ASGI's `send`, and what is told when a client leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.http.answers import WhileConnected
from gateway.http.connections.client_connection import (
    SCOPE_KEY,
    ChunkWriter,
    ClientConnection,
    chunked_connection,
    connection_of,
)
from gateway.observe.request_context import RequestContext
from tests.canned_connections import Canned, CannedTransport
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

START: Any = {"type": "http.response.start", "status": 200, "headers": []}


def connection(told: list[str] | None = None) -> ClientConnection:
    """An open connection; `told` notes that it is read again."""
    return ClientConnection(
        CannedTransport(), lambda: None if told is None else told.append("read")
    )


async def test_a_client_that_leaves_is_told_once_and_only_until_the_end() -> None:
    told: list[str] = []
    lost = connection(told)
    end = lost.on_disconnect(lambda: told.append("left"))
    other = lost.on_disconnect(lambda: told.append("other"))
    assert end is not None
    assert other is not None
    other()
    lost.lose()
    lost.lose()
    end()
    assert told == ["read", "read", "left"]
    assert lost.on_disconnect(lambda: told.append("late")) is None


async def test_a_chunk_is_written_unless_the_client_is_slow_or_gone() -> None:
    to = connection()
    writer = ChunkWriter(to)
    assert writer.wrote_at == 0.0
    assert writer.write(b"one")
    assert writer.wrote_at > 0.0
    assert not writer.write(b"")  # it would end the body
    to.is_writable = False
    assert not writer.write(b"two")
    to.is_writable = True
    assert writer.write(b"z" * 20)
    to.lose()
    assert not writer.write(b"four")
    assert to.transport.written == b"3\r\none\r\n14\r\n" + b"z" * 20 + b"\r\n"  # type: ignore[attr-defined]
    assert not writer.by_asgi
    assert ChunkWriter(None).by_asgi
    assert not ChunkWriter(None).write(b"one")


def test_only_answers_with_chunks_are_written_past_asgi() -> None:
    to = connection()
    scope: dict[str, Any] = {"http_version": "1.1", "method": "POST", SCOPE_KEY: to}
    assert chunked_connection(scope) is to
    assert chunked_connection({**scope, "http_version": "1.0"}) is None
    assert chunked_connection({**scope, "method": "HEAD"}) is None
    assert chunked_connection({"type": "http"}) is None  # of another server


async def test_the_servers_protocol_keeps_the_connection_up_to_date() -> None:
    seen: list[ClientConnection] = []
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        to = connection_of(scope)
        assert to is not None
        seen.append(to)
        to.on_disconnect(lambda: told.append("left"))
        assert len(scope) <= 14, (
            "with more than 21 entries of the gateway's too, a scope takes twice the memory"
        )
        await send(START)
        await receive()
        await receive()

    canned = Canned(app)
    canned.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await wait_until_async(lambda: seen)
    writer = ChunkWriter(seen[0])
    canned.protocol.pause_writing()
    assert not writer.write(b"one")
    canned.protocol.resume_writing()
    assert writer.write(b"one")
    assert canned.transport.written.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n")
    assert told == []
    await canned.end()
    assert told == ["left"]
    assert not writer.write(b"two")


async def test_a_body_is_known_to_be_whole_once_its_end_has_arrived() -> None:
    seen: list[ClientConnection] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        to = connection_of(scope)
        assert to is not None
        seen.append(to)
        while (await receive())["type"] != "http.disconnect":
            pass

    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n"
    for more in (b"", b"connection: upgrade\r\nupgrade: h2c\r\n"):
        seen.clear()
        canned = Canned(app)
        canned.receive(head.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n") + b"{")
        await wait_until_async(lambda: seen)
        assert not seen[0].has_whole_body
        canned.receive(b"}")
        assert seen[0].has_whole_body
        canned.receive(b"GET / HTTP/1.1\r\n")  # pipelined
        assert not seen[0].has_whole_body
        await canned.end()


@pytest.mark.parametrize("others", [True, False])
async def test_an_answer_that_is_complete_is_no_client_that_has_left(others: bool) -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        to = connection_of(scope)
        assert to is not None
        end = to.on_disconnect(lambda: told.append("left"))
        await send({**START, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
        assert end is not None
        end()

    canned = Canned(app)
    canned.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * (2 if others else 1))
    await wait_until_async(lambda: not canned.state.tasks)
    await canned.end()
    assert told == []


class Client:
    """A client of this server, or of another one, where a task waits for its message."""

    def __init__(self, own: bool) -> None:
        self._connection = connection() if own else None
        self._gone = asyncio.Event()
        self.scope: Any = {"type": "http"}
        if self._connection is not None:
            self.scope[SCOPE_KEY] = self._connection

    async def receive(self) -> Any:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._gone.set()
        if self._connection is not None:
            self._connection.lose()


on_both_servers = pytest.mark.parametrize("own", [True, False])


@on_both_servers
async def test_work_ends_when_the_client_leaves_and_the_request_goes_on(own: bool) -> None:
    client, began, ended = Client(own), asyncio.Event(), []

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def answer() -> RequestContext:
        stats = RequestContext("mine")
        stats.enter()
        with WhileConnected(client.scope, client.receive):
            await work()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)  # is not cancelled
        return stats

    answering = asyncio.create_task(answer())
    await began.wait()
    client.leave()
    assert (await answering).client_left
    assert ended == [True]


@on_both_servers
async def test_a_client_that_has_left_before_ends_the_work(own: bool) -> None:
    client = Client(own)
    client.leave()
    with WhileConnected(client.scope, client.receive):
        await asyncio.Event().wait()


@on_both_servers
async def test_a_cancelled_request_stays_cancelled(own: bool) -> None:
    client, began = Client(own), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async def answer() -> None:
        with WhileConnected(client.scope, client.receive):
            await work()

    answering = asyncio.create_task(answer())
    await began.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


@on_both_servers
async def test_what_breaks_the_work_is_raised(own: bool) -> None:
    client = Client(own)

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with (
        pytest.raises(ValueError, match="broken"),
        WhileConnected(client.scope, client.receive),
    ):
        await work()


async def test_a_pipelined_request_whose_client_has_left_before_it_watches_is_cancelled() -> None:
    """The server tells only the latest request of a connection that the client has left."""
    ended: list[str] = []
    reached, may_watch = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/second":
            reached.set()
            await may_watch.wait()
            with WhileConnected(scope, receive):
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cancelled")
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
            await asyncio.sleep(0)  # is not cancelled
            ended.append("went on")
            return
        await send({**START, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    canned = Canned(app)
    paths = (b"/first", b"/second", b"/third")
    canned.receive(b"".join(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path for path in paths))
    await reached.wait()
    canned.protocol.connection_lost(None)
    may_watch.set()
    await wait_until_async(lambda: not canned.state.tasks)
    assert ended == ["cancelled", "went on"]


async def test_an_answer_without_a_wait_to_a_client_that_has_left_cancels_nothing() -> None:
    client = Client(True)
    client.leave()
    with WhileConnected(client.scope, client.receive):
        pass
    await asyncio.sleep(0)  # is not cancelled
