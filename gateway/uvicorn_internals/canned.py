"""Canned requests over a connection in memory, for the checks at start."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from litestar.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.uvicorn_internals.connections import ServingConfig

_SECONDS: Final = 5
"""How long a canned request may take."""
_LIMIT: Final = 5.0
"""Every time limit of a canned connection, in seconds. Deadlines are checked with a later time, so that nothing waits."""
REQUEST: Final = b"GET /check HTTP/1.1\r\nhost: check\r\n\r\n"
PARTS: Final = (b"data: first\n\n", b"data: " + b"second" * 40 + b"\n\n", b"data: third\n\n")
HEAD: Final[Any] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}

QUIET = logging.Logger("uvicorn self-check", logging.CRITICAL + 1)
"""In place of uvicorn's loggers: canned requests leave no lines in the log."""

CannedApp = Callable[[Scope, Receive, Send, "Exchange"], Awaitable[None]]


class SelfCheckFailed(Exception):
    """A check failed. The text says what is wrong."""


def require(held: bool, problem: str) -> None:
    """Raise `SelfCheckFailed` with `problem` unless `held`."""
    if not held:
        raise SelfCheckFailed(problem)


def problem_of(error: Exception) -> str:
    """What went wrong, for the log; other exceptions than `SelfCheckFailed` come out of uvicorn."""
    return str(error) if isinstance(error, SelfCheckFailed) else f"{type(error).__name__}: {error}"


class CannedConnection(asyncio.Transport):
    """A connection in memory that notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = self.aborted = False
        self.unsent = 0
        """Bytes that the client has yet to read."""
        self.protocol: Any = None

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


@dataclass
class Exchange:
    """One canned connection to a protocol of its own."""

    protocol: Any
    connection: CannedConnection
    state: ServerState
    failures: list[BaseException] = field(default_factory=list)

    def late(self) -> None:
        """Check the deadlines as if the time of each had passed."""
        protocol = self.connection.protocol
        now = protocol.loop.time()
        protocol.check_deadlines(now)
        protocol.check_deadlines(now + 2 * _LIMIT)

    async def finish(self) -> None:
        """Wait for the application. Raises what it raised."""
        while self.state.tasks:
            done, _ = await asyncio.wait(self.state.tasks, timeout=_SECONDS)
            require(bool(done), "a canned request was not answered")
            await asyncio.sleep(0)
        if self.failures:
            raise self.failures[0]

    def end(self) -> None:
        """Let the connection go, and with it the protocol's timers."""
        if self.connection.protocol in self.state.connections:
            self.connection.protocol.connection_lost(None)


def open_exchange(settings: ServingConfig, app: CannedApp, *, most: int = 1) -> Exchange:
    """A connection that `app` serves, with time limits of `_LIMIT`."""
    state = ServerState()
    http: Any = settings.http
    protocol = http(config=settings, server_state=state, app_state={})
    protocol.logger, protocol.access_log = QUIET, False
    limits = protocol._limits = copy.copy(settings.limits)
    limits.head_timeout = limits.body_timeout = limits.send_timeout = _LIMIT
    limits.most = most
    connection = CannedConnection()
    exchange = Exchange(protocol, connection, state)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send, exchange)
        except BaseException as error:
            exchange.failures.append(error)
            raise

    protocol.app = served
    connection.protocol = protocol
    protocol.connection_made(connection)
    return exchange


async def exchange_of(
    settings: ServingConfig, app: CannedApp, request: bytes = REQUEST
) -> Exchange:
    """Serve one request to its end."""
    exchange = open_exchange(settings, app)
    try:
        exchange.protocol.data_received(request)
        await exchange.finish()
    finally:
        exchange.end()
    return exchange


async def plain_stream(scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
    """Send the canned response by ASGI."""
    await send(HEAD)
    for part in PARTS[:-1]:
        await send(body_part(part))
    await send(body_part(PARTS[-1], more=False))


def body_part(part: bytes, *, more: bool = True) -> Any:
    """The ASGI message of a part of a body."""
    return {"type": "http.response.body", "body": part, "more_body": more}
