"""The connection of a request's client. It takes chunks without ASGI's `send`, and calls back when the client
disconnects.

Both are faster than ASGI's messages: awaiting `send` for each token resumes all coroutines of the run, and waiting for
`http.disconnect` takes a task for each request. `docs/decisions/uvicorn.md` has the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final

SCOPE_KEY: Final = "gateway.connection"
"""The scope key of a request's `ClientConnection`. Absent if another ASGI server serves the request."""


class ClientConnection:
    """The state of an HTTP client's connection. The server's protocol updates it."""

    __slots__ = (
        "_on_disconnect",
        "_resume_reading",
        "has_whole_body",
        "is_lost",
        "is_writable",
        "transport",
    )

    def __init__(self, transport: asyncio.Transport, resume_reading: Callable[[], None]) -> None:
        """`resume_reading` makes the server read from the client again, if it has paused."""
        self.transport = transport
        self._resume_reading = resume_reading
        self.has_whole_body = False
        """Whether the bodies of all requests that have begun to arrive are complete, so that reading one does not
        wait."""
        self.is_lost = False
        self.is_writable = True
        """Whether the connection accepts more data. False while the client is slow to read, and once the connection is
        lost."""
        self._on_disconnect: tuple[Callable[[], None], ...] = ()

    def on_disconnect(self, leave: Callable[[], None]) -> Callable[[], None] | None:
        """Call `leave` once if the connection is lost. Returns a function that removes this callback, or None if the
        connection is lost already."""
        if self.is_lost:
            return None
        self._on_disconnect += (leave,)
        self._resume_reading()  # while reading is paused, a closed connection is not noticed
        return partial(self._forget, leave)

    def lose(self) -> None:
        """Note that the connection is lost, and call the registered callbacks."""
        self.is_lost, self.is_writable = True, False
        waiting, self._on_disconnect = self._on_disconnect, ()
        for leave in waiting:
            leave()

    def _forget(self, leave: Callable[[], None]) -> None:
        self._on_disconnect = tuple(each for each in self._on_disconnect if each is not leave)


def connection_of(scope: Any) -> ClientConnection | None:
    """The connection of a request; None if another ASGI server serves the request."""
    found: ClientConnection | None = scope.get(SCOPE_KEY)
    return found


class ChunkWriter:
    """Writes the chunks of an answer whose head has been sent."""

    __slots__ = ("_connection", "wrote_at")

    def __init__(self, connection: ClientConnection | None) -> None:
        """`connection` is None if all parts must be sent by ASGI: the body is not chunked, or another ASGI server is
        used."""
        self._connection = connection
        self.wrote_at = 0.0
        """Monotonic time at which the last part was written; 0.0 before the first."""

    @property
    def by_asgi(self) -> bool:
        """Whether all parts must be sent by ASGI."""
        return self._connection is None

    def write(self, part: bytes) -> bool:
        """Write a part. Returns False if nothing was written. The caller must then send the part by ASGI's `send`,
        which waits until the client has read enough."""
        connection = self._connection
        if connection is None or not connection.is_writable or not part:
            return False
        self.wrote_at = monotonic()
        connection.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True


def chunked_connection(scope: Any) -> ClientConnection | None:
    """The connection of a request if an answer of unknown length is sent to it in chunks; otherwise None."""
    connection = connection_of(scope)
    if connection is None or scope["http_version"] != "1.1" or scope["method"] == "HEAD":
        return None
    return connection
