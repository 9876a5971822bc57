"""The short way of a stream's bytes to the socket.

uvicorn's `send` looks at every message anew and costs about a microsecond of each token. Where the server is uvicorn and
the way is free, a chunk is written as uvicorn would; in all other cases the caller sends it by ASGI.
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

    __slots__ = ("wrote",)

    def __init__(self) -> None:
        self.wrote = False
        """Whether anything was written since somebody last looked."""

    @contextmanager
    def broken(self, write: Callable[[bytes], bool], seconds: float) -> Iterator[None]:
        """Within the context, `write` a comment after every `seconds` of silence, lest a proxy takes the stream for dead.

        Not where the client is slow to read, who is told enough. 0 is never.
        """
        if not seconds:
            yield
            return
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            if not self.wrote:
                write(SSE_COMMENT)
            self.wrote = False
            timer = loop.call_later(seconds, look)

        timer = loop.call_later(seconds, look)
        try:
            yield
        finally:
            timer.cancel()


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
