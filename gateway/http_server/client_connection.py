"""The connection of a request's client: chunks without ASGI's `send`, and a call when the client leaves.

ASGI has no message for either. Awaiting `send` for each token resumes all coroutines of the run, and waiting for `http.disconnect`
takes a task for each request. `docs/decisions/uvicorn.md` has the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final

SCOPE_KEY: Final = "gateway.connection"
"""Where the scope of a request has its `ClientConnection`, if the server of this gateway serves it."""


class ClientConnection:
    """The open connection of an HTTP client. The server's protocol keeps it up to date."""

    __slots__ = (
        "_on_disconnect",
        "_resume_reading",
        "has_whole_body",
        "is_lost",
        "is_writable",
        "transport",
    )

    def __init__(self, transport: asyncio.Transport, resume_reading: Callable[[], None]) -> None:
        """`resume_reading` lets the server read again what the client sends."""
        self.transport = transport
        self._resume_reading = resume_reading
        self.has_whole_body = False
        """Whether all requests that have begun to arrive are here with their bodies, so that reading one does not wait."""
        self.is_lost = False
        self.is_writable = True
        """Whether the connection takes more data: False while the client is slow to read, and when the connection is lost."""
        self._on_disconnect: tuple[Callable[[], None], ...] = ()

    def on_disconnect(self, leave: Callable[[], None]) -> Callable[[], None] | None:
        """Call `leave` once if the connection is lost. Returns a function that ends this, or None if it is lost already."""
        if self.is_lost:
            return None
        self._on_disconnect += (leave,)
        self._resume_reading()  # a connection that is not read does not tell that it is closed
        return partial(self._forget, leave)

    def lose(self) -> None:
        """Note that the connection is lost, and call what waits for it."""
        self.is_lost, self.is_writable = True, False
        waiting, self._on_disconnect = self._on_disconnect, ()
        for leave in waiting:
            leave()

    def _forget(self, leave: Callable[[], None]) -> None:
        self._on_disconnect = tuple(each for each in self._on_disconnect if each is not leave)


def connection_of(scope: Any) -> ClientConnection | None:
    """The connection of a request; None if another server serves it."""
    found: ClientConnection | None = scope.get(SCOPE_KEY)
    return found


class ChunkWriter:
    """Writes the chunks of an answer whose head is sent."""

    __slots__ = ("_connection", "wrote_at")

    def __init__(self, connection: ClientConnection | None) -> None:
        """`connection` is None if all parts have to be sent by ASGI: the body is not chunked, or the server is another one."""
        self._connection = connection
        self.wrote_at = 0.0
        """When the last part was written, by the monotonic clock; 0.0 if there was none."""

    @property
    def by_asgi(self) -> bool:
        """Whether all parts have to be sent by ASGI."""
        return self._connection is None

    def write(self, part: bytes) -> bool:
        """Write a part. Returns False if it wrote nothing: the caller must then send the part by ASGI's `send`, which waits until
        the client has read enough."""
        connection = self._connection
        if connection is None or not connection.is_writable or not part:
            return False
        self.wrote_at = monotonic()
        connection.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True


def chunked_connection(scope: Any) -> ClientConnection | None:
    """The connection of a request, if an answer of unknown length to it is chunked."""
    connection = connection_of(scope)
    if connection is None or scope["http_version"] != "1.1" or scope["method"] == "HEAD":
        return None
    return connection
