"""The fast path of an answer's bytes to the socket, past uvicorn's `send`, and of a request's body, past its `receive`.

`send` examines every message anew and costs about a microsecond a token, and each of its writes is a system call that wakes the
reader. If `send` belongs to uvicorn and the connection is ready, a chunk is written here as uvicorn would write it, and the head
of an answer leaves together with its first part. In all other cases the caller sends them by ASGI.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable
from time import monotonic
from typing import Final, Protocol

from litestar.types import ASGIApp, Message, Receive, Scope, Send

try:
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle as RequestResponseCycle
except ImportError:  # reported by the self-check
    STATUS_LINE = {}

    class RequestResponseCycle:  # type: ignore[no-redef]
        """No answer is one of these."""


_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that no line of a head may have; carriage returns and line feeds are counted."""


class ChunkWriter(Protocol):
    """Writes the parts of a body that has begun."""

    by_asgi: bool
    """Whether it leaves all parts to the caller, because the server is another one."""
    wrote_at: float
    """When the last part was written, by the monotonic clock; 0.0 if there was none."""

    def write(self, body: bytes) -> bool:
        """Write a part. Returns False if it wrote nothing: the caller must then send the part by ASGI's `send`, which waits until
        the client has read enough."""
        ...


class SingleWrite:
    """Holds what is sent by `send` within the context, and writes it at once at the end."""

    __slots__ = ("_cycle", "_held")

    def __init__(self, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        self._cycle = cycle if isinstance(cycle, RequestResponseCycle) else None
        self._held: _HeldWrites | None = None

    def __enter__(self) -> None:
        if self._cycle is not None:
            self._cycle.transport = self._held = _HeldWrites(self._cycle.transport)

    def __exit__(self, *exc_info: object) -> None:
        if self._cycle is not None and self._held is not None:
            self._cycle.transport = self._held.transport
            self._held.release()


class _HeldWrites(asyncio.Transport):
    """Stands in for a connection: has all that uvicorn uses of one while it sends."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self.transport = transport
        self._parts: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._parts.append(data)

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def close(self) -> None:
        self.release()
        self.transport.close()

    def release(self) -> None:
        if self._parts:
            self.transport.write(b"".join(self._parts))
            self._parts.clear()


def unbegun_cycle(send: Send) -> RequestResponseCycle | None:
    """Return what `write_answer` and `write_beginning` take, if they can write now in place of `send`; otherwise None: the caller must
    then send the answer by ASGI."""
    cycle = getattr(send, "__self__", None)
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.response_started
        or cycle.disconnected
        or cycle.chunked_encoding is not None
        or cycle.flow.write_paused
        or not cycle.keep_alive
        or cycle.access_log
        or cycle.scope["method"] == "HEAD"
    ):
        return None
    return cycle


def write_answer(
    cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    """Write a whole answer at once, as uvicorn does.

    The names of `headers` are in lower case. The length of `body` is among them, and nothing else that is about the connection. Raises
    `RuntimeError` for a value that a header cannot have.
    """
    head = _begin(cycle, status, headers)
    cycle.chunked_encoding = False
    cycle.transport.write(b"".join((head, b"\r\n", body)))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()


def write_beginning(
    cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], part: bytes
) -> None:
    """Write the head of an answer and the first part of its body, which is not empty, at once, as uvicorn does. What follows are
    chunks.

    The names of `headers` are in lower case, and none is about the connection or the length. Raises `RuntimeError` for a value that
    a header cannot have.
    """
    head = _begin(cycle, status, headers)
    cycle.chunked_encoding = True
    chunk = (b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(part), part, b"\r\n")
    cycle.transport.write(b"".join((head, *chunk)))


def _begin(
    cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """Begin an answer. Returns the lines of its head."""
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    lines = [*map(b": ".join, (*cycle.default_headers, *headers)), b""]
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or _CONTROL.search(head):
        raise RuntimeError("Invalid HTTP header value.")
    return STATUS_LINE[status] + head


def arrived_body(receive: Receive) -> bytes | None:
    """Return the whole body of a request if it has arrived, as that of most requests has; otherwise None: the caller must
    then read it by `receive`."""
    cycle = getattr(receive, "__self__", None)
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.more_body
        or cycle.waiting_for_100_continue
        or cycle.disconnected
        or cycle.response_complete
    ):
        return None
    # As in `receive`, whose next message is that the client has left.
    cycle.flow.resume_reading()
    cycle.message_event.clear()
    body, cycle.body = bytes(cycle.body), bytearray()
    return body


def chunk_writer(send: Send) -> ChunkWriter:
    """Return what writes the parts of a body that has begun, past `send`."""
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or not cycle.chunked_encoding:
        return _NoWriter()
    return _CycleWriter(cycle)


class _CycleWriter:
    """Writes as uvicorn does. Implements `ChunkWriter`."""

    __slots__ = ("_cycle", "_flow", "_transport", "wrote_at")

    by_asgi = False

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow, self._transport = cycle.flow, cycle.transport
        self.wrote_at = 0.0

    def write(self, body: bytes) -> bool:
        if self._flow.write_paused or self._cycle.disconnected or not body:
            return False
        self.wrote_at = monotonic()
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True


class _NoWriter:
    """Leaves all parts to the caller. Implements `ChunkWriter`."""

    __slots__ = ("wrote_at",)

    by_asgi = True

    def __init__(self) -> None:
        self.wrote_at = 0.0

    def write(self, body: bytes) -> bool:
        return False


def unchunked(send: Send) -> Send:
    """Return a `send` for HTTP/1.0 clients, which know no chunks: a body of unknown length ends with the connection.

    uvicorn sends chunks to them as well (RFC 9112, 6.1: a server must not). `send` itself is returned if the fast path is not in
    use.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):
        return send

    async def send_until_closed(message: Message) -> None:
        if message["type"] == "http.response.start":
            if not any(name.lower() == b"content-length" for name, _ in message["headers"]):
                cycle.chunked_encoding = False
                cycle.expected_content_length = sys.maxsize
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return send_until_closed


def plain_asgi(app: ASGIApp) -> ASGIApp:
    """Return `app` without the fast path: its `send` does not tell which server it belongs to."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def plain_send(message: Message) -> None:
            await send(message)

        await app(scope, receive, plain_send)

    return served
