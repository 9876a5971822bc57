"""The short way of an answer's bytes to the socket.

uvicorn's `send` looks at every message anew and costs about a microsecond of each token, and each of its writes is one of
the system's, which wakes the reader. Where the server is uvicorn and the way is free, a chunk is written as uvicorn would,
and the head of an answer with its first part; in all other cases the caller sends them by ASGI.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from litestar.types import Message, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

SSE_COMMENT = b": keep-alive\n\n"
"""What clients of server-sent events pass over (WHATWG HTML, 9.2.6)."""


class Silence:
    """How long a stream has said nothing."""

    __slots__ = ("_seconds", "_timer", "_write", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        """Whether anything was written since somebody last looked."""
        self._seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._write: Callable[[bytes], bool] = _never

    @contextmanager
    def broken(self, write: Callable[[bytes], bool], seconds: float) -> Iterator[None]:
        """Within the context, `write` a comment after every `seconds` of silence, lest a proxy takes the stream for dead.

        Not where the client is slow to read, who is told enough. 0 is never.
        """
        if not seconds:
            yield
            return
        self._seconds, self._write = seconds, write
        self._wait()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            # Both refer back to this object, which would then stay until the garbage collector comes.
            self._timer, self._write = None, _never

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def _look(self) -> None:
        if not self.wrote:
            self._write(SSE_COMMENT)
        self.wrote = False
        self._wait()


class OneWrite:
    """Within the context, what is sent by `send` is held, and leaves in one write at its end."""

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
    """In place of a connection: all that uvicorn uses of one while it sends."""

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


def chunk_writer(send: Send, silence: Silence | None = None) -> Callable[[bytes], bool]:
    """What writes a part of a body that has begun. False: it wrote nothing, and `send` shall, which waits its turn.

    `silence` is told of what was written.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or not cycle.chunked_encoding:
        return _never
    flow, transport = cycle.flow, cycle.transport
    heard = silence or Silence()

    def write(body: bytes) -> bool:
        if flow.write_paused or cycle.disconnected or not body:
            return False
        heard.wrote = True
        transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    return write


def unchunked(send: Send) -> Send:
    """`send` for a client of HTTP/1.0, which knows no chunks: a body of unknown length ends with the connection.

    uvicorn would send it chunks all the same (RFC 9112, 6.1: a server must not). Where the server is another, it is left
    to that.
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


def _never(body: bytes) -> bool:
    return False
