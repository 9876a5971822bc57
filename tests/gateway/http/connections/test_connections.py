"""Connections whose server stops, whose client reads slowly, or whose request was not read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.canned_connections import Canned, websocket
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"


@pytest.mark.parametrize("client_closes", [True, False])
async def test_it_is_closed_once_whoever_begins(client_closes: bool) -> None:
    """The stop of the server ended with an error of the library where the client had begun to close the connection."""
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.append(await receive())

    canned = await websocket(app)
    protocol, transport = canned.protocol, canned.transport
    if client_closes:
        protocol.data_received(CLOSE)
    protocol.shutdown()
    assert transport.closing
    assert transport.written.endswith(b"\x88\x02\x03\xe8" if client_closes else b"\x88\x02\x03\xf4")
    await wait_until_async(lambda: told)
    assert told[0]["code"] == (1000 if client_closes else 1012)
    await canned.end()


async def test_a_body_that_nobody_reads_is_not_kept_while_the_connection_is_idle() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    canned = Canned(app)
    protocol, transport = canned.protocol, canned.transport
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n"
    protocol.data_received(head + b"x" * 60_000)
    await wait_until_async(lambda: b" 404 " in transport.written)
    assert not protocol.cycle.body
    await canned.end()


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_reads_is_not_cut_off_because_the_buffer_is_full_at_each_look(
    reads: bool,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    canned = await websocket(app, send_timeout=10)
    protocol, transport = canned.protocol, canned.transport
    now = protocol.loop.time()
    for second in range(60):
        if reads:
            protocol.resume_writing()  # the client has read, and the run has written again
        protocol.pause_writing()
        protocol.check_deadlines(now + second)
    assert transport.closing is not reads
    await canned.end()
