"""Connections in memory, which the server's protocols serve."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.server import ServerState

from gateway.config import ServerConfig
from gateway.http.connections.connections import Connections, ServingConfig
from gateway.http.connections.http_protocol import LimitedHttpProtocol
from gateway.http.connections.websocket_protocol import LimitedWebSocketProtocol
from tests.waiting import wait_until_async

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class CannedTransport(asyncio.Transport):
    """Notes what is written. Its client never reads, unless `unsent` is 0."""

    def __init__(self, unsent: int = 64 * 1024) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closing = False
        self.unsent = unsent
        self.is_read = True
        self.protocol: Any = None

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class Canned:
    """A connection that `app` serves."""

    def __init__(self, app: Any, **limits: Any) -> None:
        settings = ServingConfig(
            app,
            interface="asgi3",
            http=LimitedHttpProtocol,
            ws=LimitedWebSocketProtocol,
            lifespan="off",
            log_config=None,
        )
        settings.limits = Connections(ServerConfig(**limits))
        settings.load()
        self.state = ServerState()
        self.transport = CannedTransport()
        self.transport.protocol = LimitedHttpProtocol(
            config=settings, server_state=self.state, app_state={}
        )
        self.protocol.connection_made(self.transport)

    @property
    def protocol(self) -> Any:
        """The protocol that has the connection: after a handshake, the WebSocket's."""
        return self.transport.protocol

    def receive(self, data: bytes) -> None:
        """The client sends `data`."""
        self.protocol.data_received(data)

    async def end(self) -> None:
        """Lose the connection, and wait for the application."""
        self.protocol.connection_lost(None)
        await wait_until_async(lambda: not self.state.tasks)


async def websocket(app: Any, **limits: Any) -> Canned:
    """A WebSocket whose handshake is done."""
    made = Canned(app, **limits)
    made.receive(HANDSHAKE)
    await wait_until_async(lambda: b" 101 " in made.transport.written)
    return made
