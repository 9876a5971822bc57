"""The body of a streamed answer: its head, its parts, and what keeps its connection open while there is nothing to send."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import monotonic
from typing import Final

from litestar.types import Send

from gateway.http_server.client_connection import ChunkWriter, ClientConnection
from gateway.loop.sinks import ACCEPTED
from gateway.routes.body_slices import SLICE, send_body
from gateway.shared_timers import SharedTimer, SharedTimers

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
"""Headers of a plugin's API by which the body may be something else than chunks."""


class StreamBody:
    """The body of a streamed answer."""

    __slots__ = (
        "_connection",
        "_headers",
        "_is_sending",
        "_send",
        "_send_head",
        "_sending",
        "_sign",
        "_timer",
        "_unsent",
        "_writer",
        "write_chunk",
    )

    def __init__(
        self,
        send_head: Send,
        send: Send,
        headers: Callable[[], Iterable[tuple[bytes, bytes]]],
        connection: ClientConnection | None = None,
    ) -> None:
        """`headers` are asked for when the head is sent. `connection`: see `chunked_connection`."""
        self._connection = connection
        self._send_head = send_head
        self._send = send
        self._headers = headers
        self._writer: ChunkWriter | None = None
        """Set once the head is sent."""
        self.write_chunk: Callable[[bytes], bool] | None = None
        """Set once the head is sent. Writes a part unless the client is slow to read, and returns whether it did; costs less
        than `write`. Not set while a part is left that was not sent."""
        self._is_sending = False
        """Whether the head or a large part is being sent, which nothing may break."""
        self._timer: SharedTimer | None = None
        """When the silence is broken next."""
        self._sending: asyncio.Task[None] | None = None
        """Sends what breaks the silence, if that cannot be written at once."""
        self._sign: Callable[[], bytes] | None = None
        """Returns what breaks the silence."""
        self._unsent = b""
        """Parts, or the rest of one, whose sending was cancelled while it waited. They are sent before the next part."""

    def write(self, part: bytes) -> Awaitable[None]:
        """Send `part`. Awaiting the result, before the next part, is the back-pressure; it is `ACCEPTED` where there is none. If
        that is cancelled, as at a deadline while the client is slow to read, the part is sent before the next one."""
        if self._unsent:
            part, self._unsent = self._unsent + part, b""
        if self._sending is not None:
            return self._write_after(part)
        if self._writer is None:
            return self._begin(part)
        if len(part) <= SLICE and self._writer.write(part):
            return ACCEPTED
        self._writer.wrote_at = monotonic()
        return self._send_part(part)

    def write_later(self, part: bytes) -> None:
        """Send `part` before the next one."""
        self._unsent, self.write_chunk = self._unsent + part, None

    async def open(self) -> Callable[[bytes], bool]:
        """Send the head before there is a part. Returns `write_chunk`. Called before any part is written, if at all."""
        if self._sending is not None:
            await self._settle(self._sending)
        if self._writer is not None:
            return self._writer.write
        self._is_sending = True
        await self._start()
        return self._opened().write

    async def end(self, part: bytes) -> None:
        """Send the last part."""
        if not await self.has_begun():
            await self._start()
        await send_body(self._send, self._unsent + part)

    def keep_open(
        self, timers: SharedTimers, first: float, seconds: float, sign: Callable[[], bytes]
    ) -> None:
        """Send what `sign` returns after `first` seconds without a part, and then after every `seconds` of silence, if that is not
        0. It may be what the body begins with. Nothing is sent if it is empty, or while the client is slow to read."""
        self._sign = sign
        self._timer = timers.call_later(first, partial(self._check, timers, seconds))

    def go_on(
        self, headers: Callable[[], Iterable[tuple[bytes, bytes]]], sign: Callable[[], bytes]
    ) -> bool:
        """Let another object go on with this body. Returns whether its head is sent, or is being sent, so that `headers` are not
        asked for."""
        self._headers, self._sign = headers, sign
        return self._writer is not None or self._sending is not None

    async def has_begun(self) -> bool:
        """Break no further silence, and wait until a head that is being sent for one has left. Returns whether the head is sent, so
        that the status cannot change."""
        self._end_timer()
        if self._sending is not None:
            await self._settle(self._sending)
        return self._writer is not None

    async def close(self) -> None:
        """Send nothing more. Called however the answer ends."""
        self._end_timer()
        if self._sending is not None:
            self._sending.cancel()
            await self._settle(self._sending)

    def _check(self, timers: SharedTimers, seconds: float) -> None:
        self._timer = None
        sign = self._sign
        assert sign is not None, "a timer has something to send"
        writer, left = self._writer, 0.0
        if writer is not None and writer.wrote_at:
            # The time that is left until the silence has lasted `seconds`.
            left = writer.wrote_at + seconds - monotonic() if seconds else math.inf
        if seconds:
            pause = left if left > 0 else seconds
            self._timer = timers.call_later(pause, partial(self._check, timers, seconds))
        if left > 0:
            return
        if self._sending is not None and not self._sending.done():
            return  # the client has yet to read the last sign
        if self._is_sending or self._unsent:
            return
        if writer is None:
            if part := sign():
                self._sending = asyncio.create_task(self._begin(part))
            return
        if (part := sign()) and not writer.write(part) and writer.by_asgi:
            self._sending = asyncio.create_task(self._send_part(part))
            writer.wrote_at = monotonic()

    async def _begin(self, part: bytes) -> None:
        self._is_sending, started = True, False
        first, rest = part[:SLICE], part[SLICE:]
        try:
            await self._start()
            started = True
            await self._send_part(first)
            if rest:
                first, rest = rest, b""
                await self._send_part(first)
        except asyncio.CancelledError:
            self._unsent = self._unsent + rest if started else part
            raise
        finally:
            if started:
                self._opened().wrote_at = monotonic()

    async def _write_after(self, part: bytes) -> None:
        """Write `part` after what breaks the silence."""
        if self._sending is not None:
            try:
                await self._settle(self._sending)
            except asyncio.CancelledError:
                self.write_later(part)
                raise
        await self.write(part)

    async def _settle(self, sending: asyncio.Task[None]) -> None:
        await asyncio.wait((sending,))  # which goes on if this is cancelled
        self._sending = None
        if not sending.cancelled():
            sending.exception()  # the next part fails likewise

    def _opened(self) -> ChunkWriter:
        self._writer = writer = ChunkWriter(self._connection)
        self.write_chunk = None if self._unsent else writer.write
        self._is_sending = False
        return writer

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _start(self) -> None:
        headers = [*self._headers()]
        if not _FRAMING.isdisjoint(name.lower() for name, _ in headers):
            self._connection = None
        await self._send_head({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send_part(self, part: bytes) -> None:
        """Send `part`, a large one in slices."""
        at, size = 0, len(part)
        self._is_sending = True
        try:
            while True:
                piece = part[at : at + SLICE]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                at += SLICE
                if at >= size:
                    return
        except asyncio.CancelledError:
            # The piece was not written: servers wait for slow clients before they write.
            self._unsent, self.write_chunk = part[at:], None
            raise
        finally:
            self._is_sending = False
