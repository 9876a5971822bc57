"""Comments in event streams that would otherwise be silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from litestar.types import Send

from gateway.shared_timers import SharedTimer, SharedTimers

SSE_COMMENT = b": keep-alive\n\n"
"""A comment, which clients of server-sent events ignore (WHATWG HTML, 9.2.6)."""


class Silence:
    """Sends comments in a stream that has been silent for some time."""

    __slots__ = ("_seconds", "_sending", "_timer", "_timers", "_write", "send", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        """Whether anything was written since the last check."""
        self.send: Send | None = None
        """Sends the comments where chunks are sent by ASGI and not written."""
        self._seconds = 0.0
        self._sending: asyncio.Task[None] | None = None
        self._timer: SharedTimer | None = None
        self._timers: SharedTimers | None = None
        self._write: Callable[[bytes], bool] = _no_comment

    def watch(self, timers: SharedTimers, write: Callable[[bytes], bool], seconds: float) -> None:
        """From now on, until `end`, `write` a comment after every `seconds` of silence, so that proxies keep the stream
        open.

        Nothing is written while the client is slow to read. If `seconds` is 0, no comment is written.
        """
        if seconds:
            self._timers, self._seconds, self._write = timers, seconds, write
            self._timer = timers.call_later(seconds, self._check)

    def end(self) -> None:
        """Write no more comments."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        # These refer back to this object, which would otherwise stay until the garbage collector runs.
        self._timer, self._write, self.send, self._sending = None, _no_comment, None, None

    def _check(self) -> None:
        if not self.wrote and not self._write(SSE_COMMENT) and self.send is not None:
            self._send_comment(self.send)
        self.wrote = False
        if self._timers is not None:
            self._timer = self._timers.call_later(self._seconds, self._check)

    def _send_comment(self, send: Send) -> None:
        """Send a comment by ASGI, unless the client has yet to read the one before."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(_send_comment(send))


async def _send_comment(send: Send) -> None:
    await send({"type": "http.response.body", "body": SSE_COMMENT, "more_body": True})


def _no_comment(body: bytes) -> bool:
    return False
