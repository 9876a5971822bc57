"""The body of a streamed answer: its head, its parts, and keep-alive parts while there is nothing to send."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import monotonic
from typing import Final

from litestar.types import Send

from gateway.base.shared_timers import SharedTimer, SharedTimers
from gateway.generation.sinks import ACCEPTED
from gateway.http.body_slices import SLICE, send_body
from gateway.http.connections.client_connection import ChunkWriter, ClientConnection

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
"""Headers with which a plugin's API can choose a framing of the body other than chunks."""


class StreamBody:
    """Writes the head and the parts of a streamed answer. Sends keep-alive parts during silences."""

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
        """`headers` is called when the head is sent. `connection`: see `chunked_connection`."""
        self._connection = connection
        self._send_head = send_head
        self._send = send
        self._headers = headers
        self._writer: ChunkWriter | None = None
        """Set once the head is sent."""
        self.write_chunk: Callable[[bytes], bool] | None = None
        """Writes a part unless the client is slow to read, and returns whether it did. Costs less than `write`. None
        until the head is sent, and once a part was left unsent."""
        self._is_sending = False
        """Whether the head or a large part is being sent, so that no keep-alive part may be inserted."""
        self._timer: SharedTimer | None = None
        """The timer of the next keep-alive part."""
        self._sending: asyncio.Task[None] | None = None
        """Sends a keep-alive part, if it could not be written immediately."""
        self._sign: Callable[[], bytes] | None = None
        """Returns the keep-alive part."""
        self._unsent = b""
        """Parts, or the rest of one, whose sending was cancelled while it waited for the client. Sent before the next
        part."""

    def write(self, part: bytes) -> Awaitable[None]:
        """Send `part`. Await the result before writing the next part: this is the back-pressure. The result is
        `ACCEPTED` if there is nothing to wait for. If waiting is cancelled, for instance by a deadline while the client
        is slow to read, the part is sent before the next one."""
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
        """Send the head before there is a part. Returns the value of `write_chunk`. May only be called before the first
        part."""
        await self._settle()
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
        """Send the keep-alive part that `sign` returns after `first` seconds without a part, and then after every
        `seconds` of silence unless that is 0. The body may begin with it. Nothing is sent if `sign` returns an empty
        part, or while the client is slow to read."""
        self._sign = sign
        self._timer = timers.call_later(first, partial(self._check, timers, seconds))

    def go_on(
        self, headers: Callable[[], Iterable[tuple[bytes, bytes]]], sign: Callable[[], bytes]
    ) -> bool:
        """Hand this body over to another answer, which provides `headers` and `sign`. Returns whether the head has been
        sent, or is being sent, so that `headers` will not be called."""
        self._headers, self._sign = headers, sign
        return self._writer is not None or self._sending is not None

    async def has_begun(self) -> bool:
        """Stop sending keep-alive parts, and wait until one that is being sent has been sent. Returns whether the head
        has been sent, so that the status cannot change."""
        self._end_timer()
        await self._settle()
        return self._writer is not None

    async def close(self) -> None:
        """Send nothing more. Must be called however the answer ends."""
        self._end_timer()
        if self._sending is not None:
            self._sending.cancel()
        await self._settle()

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
            return  # the client has not yet read the last keep-alive part
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
        """Write `part` after the keep-alive part that is being sent."""
        try:
            await self._settle()
        except asyncio.CancelledError:
            self.write_later(part)
            raise
        await self.write(part)

    async def _settle(self) -> None:
        """Wait until no keep-alive part is being sent."""
        while (sending := self._sending) is not None:
            await asyncio.wait((sending,))  # does not cancel `sending` if this is cancelled
            if not sending.cancelled():
                sending.exception()  # retrieved only: the next part fails in the same way
            # If a timer rang meanwhile, the next one is being sent.
            if self._sending is sending:
                self._sending = None

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
            # The piece was not written, because servers wait for slow clients before they write.
            self._unsent, self.write_chunk = part[at:], None
            raise
        finally:
            self._is_sending = False
