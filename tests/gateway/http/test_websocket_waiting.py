"""A client of a WebSocket that sends frames while an authenticator still decides about its handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.frames import Frame, Opcode

from gateway import hookimpl
from gateway.plugins.protocols import Credentials, Principal
from gateway_testing.server import run_gateway
from tests.canned_connections import HANDSHAKE
from tests.waiting import wait_until

CONFIG = {
    "server": {"body_timeout": 0.1},
    "models": {"m": {"engine": "scripted"}},
    "authenticators": {"slow": {}},
}
PONGS = Frame(Opcode.PONG, b"a").serialize(mask=True) * 600
PING = Frame(Opcode.PING, b"a").serialize(mask=True)
PARTIAL = Frame(Opcode.TEXT, b"a" * 100).serialize(mask=True)[:50]


class Slow:
    """Knows everybody. It decides about WebSockets once it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def authenticate(self, request: Credentials) -> Principal | None:
        if "sec-websocket-key" in request.headers:
            self.asked += 1
            await self.may_answer.wait()
        return Principal(name="ada")

    async def decide(self) -> None:
        self.may_answer.set()


class Plugin:
    slow: Slow

    @asynccontextmanager
    async def make(self, config: Any) -> AsyncIterator[Slow]:
        self.slow = Slow()
        yield self.slow

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("slow", self.make)


@pytest.mark.parametrize("early", [PONGS, PING + PARTIAL], ids=["pongs", "a ping and a part"])
def test_frames_before_the_handshake_is_accepted_end_their_connection_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, early: bytes
) -> None:
    plugin = Plugin()
    handshake = HANDSHAKE.replace(b"GET /", b"GET /v1/responses").replace(
        b"host: a", b"host: localhost"
    )
    with run_gateway(CONFIG, tmp_path, plugins=[plugin]) as gateway:
        parts = urlsplit(gateway.base_url)
        address = (str(parts.hostname), int(parts.port or 0))
        with (
            socket.create_connection(address, timeout=60) as neighbour,
            socket.create_connection(address, timeout=60) as client,
        ):
            for each in (neighbour, client):
                each.sendall(handshake)
            wait_until(lambda: plugin.slow.asked == 2)
            client.sendall(early)
            with suppress(ConnectionResetError):
                assert client.recv(1000) == b""
            gateway.run(plugin.slow.decide())
            assert neighbour.recv(1000).startswith(b"HTTP/1.1 101 ")
        assert httpx.get(f"{gateway.base_url}/models").status_code == 200
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
