"""Connections whose server stops, whose client reads slowly, or whose request was not read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState

from gateway.config import ServerConfig
from gateway.uvicorn_internals.connections import Connections, ServingConfig
from gateway.uvicorn_internals.http_protocol import LimitedHttpProtocol
from gateway.uvicorn_internals.websocket_protocol import LimitedWebSocketProtocol
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"


class Unread(asyncio.Transport):
    """A connection whose client does not read: it is closed when all has left, which it never has."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def get_write_buffer_size(self) -> int:
        return 64 * 1024


@pytest.mark.parametrize("client_closes", [True, False])
async def test_it_is_closed_once_whoever_begins(client_closes: bool) -> None:
    """The stop of the server ended with an error of the library where the client had begun to close the connection."""
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.append(await receive())

    settings = ServingConfig(
        app, http=LimitedHttpProtocol, ws=LimitedWebSocketProtocol, lifespan="off", log_config=None
    )
    settings.limits = Connections(ServerConfig())
    settings.load()
    state, transport = ServerState(), Unread()
    protocol = LimitedWebSocketProtocol(config=settings, server_state=state, app_state={})
    protocol.connection_made(transport)
    protocol.data_received(HANDSHAKE)
    await wait_until_async(lambda: b" 101 " in transport.written)
    if client_closes:
        protocol.data_received(CLOSE)
    protocol.shutdown()
    assert transport.closing
    assert transport.written.endswith(b"\x88\x02\x03\xe8" if client_closes else b"\x88\x02\x03\xf4")
    await wait_until_async(lambda: told)
    assert told[0]["code"] == (1000 if client_closes else 1012)
    protocol.connection_lost(None)
    await wait_until_async(lambda: not state.tasks)


async def test_a_body_that_nobody_reads_is_not_kept_while_the_connection_is_idle() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    settings = ServingConfig(
        app, http=LimitedHttpProtocol, ws=LimitedWebSocketProtocol, lifespan="off", log_config=None
    )
    settings.limits = Connections(ServerConfig())
    settings.load()
    state, transport = ServerState(), Unread()
    protocol = LimitedHttpProtocol(config=settings, server_state=state, app_state={})
    protocol.connection_made(transport)
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n"
    protocol.data_received(head + b"x" * 60_000)
    await wait_until_async(lambda: b" 404 " in transport.written)
    assert not protocol.cycle.body
    protocol.connection_lost(None)
    await wait_until_async(lambda: not state.tasks)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_reads_is_not_cut_off_because_the_buffer_is_full_at_each_look(
    reads: bool,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    settings = ServingConfig(
        app, http=LimitedHttpProtocol, ws=LimitedWebSocketProtocol, lifespan="off", log_config=None
    )
    settings.limits = Connections(ServerConfig(send_timeout=10))
    settings.load()
    state, transport = ServerState(), Unread()
    protocol = LimitedWebSocketProtocol(config=settings, server_state=state, app_state={})
    protocol.connection_made(transport)
    protocol.data_received(HANDSHAKE)
    await wait_until_async(lambda: b" 101 " in transport.written)
    now = protocol.loop.time()
    for second in range(60):
        if reads:
            protocol.resume_writing()  # the client has read, and the run has written again
        protocol.pause_writing()
        protocol.check_deadlines(now + second)
    assert transport.closing is not reads
    protocol.connection_lost(None)
    await wait_until_async(lambda: not state.tasks)
