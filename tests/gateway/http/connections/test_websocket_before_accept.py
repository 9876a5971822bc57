"""Frames that a client sends before its handshake is accepted, which RFC 6455 (4.1) does not allow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from gateway.http.connections.websocket_protocol import FRAMES_AT_ONCE
from tests.canned_connections import HANDSHAKE, Canned
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PONGS = Frame(Opcode.PONG, b"a").serialize(mask=True) * (FRAMES_AT_ONCE + 100)
PING = Frame(Opcode.PING, b"a").serialize(mask=True)
PARTIAL = Frame(Opcode.TEXT, b"a" * 100).serialize(mask=True)[:50]


class App:
    """Accepts a handshake once it may, as one whose authenticator waits, and notes what it receives."""

    def __init__(self) -> None:
        self.may_accept = asyncio.Event()
        self.received: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await self.may_accept.wait()
        await send({"type": "websocket.accept"})
        while True:
            message = await receive()
            self.received.append(message.get("text", message["type"]))
            if message["type"] == "websocket.disconnect":
                return


def too_old(canned: Canned) -> None:
    canned.receive(PARTIAL)
    canned.protocol.check_deadlines(asyncio.get_running_loop().time() + 3600)


@pytest.mark.parametrize(
    "break_rules",
    [
        lambda canned: canned.receive(PONGS),
        too_old,
        lambda canned: canned.receive(Frame(Opcode.TEXT, b"a").serialize(mask=False)),
        lambda canned: canned.receive(Frame(Opcode.TEXT, b"\xff").serialize(mask=True)),
    ],
    ids=["too many pongs", "a partial frame that is too old", "unmasked", "not UTF-8"],
)
async def test_what_breaks_a_limit_or_a_rule_ends_its_connection_alone(
    break_rules: Callable[[Canned], None], caplog: pytest.LogCaptureFixture
) -> None:
    app, other = App(), App()
    canned, neighbour = Canned(app), Canned(other)
    for each in (canned, neighbour):
        each.receive(HANDSHAKE)
    break_rules(canned)
    assert canned.transport.closing
    assert canned.transport.written == b""
    app.may_accept.set()
    await canned.end()
    assert canned.transport.written == b""
    assert app.received == []
    other.may_accept.set()
    await wait_until_async(lambda: b" 101 " in neighbour.transport.written)
    await neighbour.end()
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_ping_is_answered_once_the_handshake_is_accepted() -> None:
    app = App()
    canned = Canned(app)
    canned.receive(HANDSHAKE)
    canned.receive(PING)
    assert canned.transport.writes == []
    app.may_accept.set()
    await wait_until_async(lambda: len(canned.transport.writes) == 2)
    head, pong = canned.transport.writes
    assert head.startswith(b"HTTP/1.1 101 ")
    assert pong == Frame(Opcode.PONG, b"a").serialize(mask=False)
    await canned.end()


async def test_a_message_is_received_once_the_handshake_is_accepted() -> None:
    app = App()
    canned = Canned(app)
    canned.receive(HANDSHAKE)
    canned.receive(Frame(Opcode.TEXT, b"early").serialize(mask=True))
    assert canned.transport.writes == []
    app.may_accept.set()
    await wait_until_async(lambda: app.received == ["early"])
    await canned.end()
