"""One HTTP/1.1 connection to a replica, parsed by httptools. Data that arrives together is read together.

Optimised for streams of small pieces, where the layers of a general client dominate the cost.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Final

import httptools

from gateway_remote.failures import ReplicaFailure

HIGH_WATER: Final = 128 * 1024
"""Buffered bytes above which reading from the connection is paused."""


MAX_WITHOUT_BODY: Final = 256 * 1024
"""Maximum number of bytes in a row that are not of the body: of the head, of the frames of chunks, of what follows them."""

MAX_UNPACKED: Final = 8 * 1024 * 1024
"""Maximum size of what one piece of a compressed body becomes, in bytes. Text is compressed to a tenth or so."""
_UNPACKED: Final = (b"gzip", b"x-gzip", b"deflate")


class ReplicaConnection(asyncio.Protocol):
    """Handles one exchange at a time: `send`, `head`, then `read` until it returns nothing. Reusable if `idle`
    afterwards."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._without_body = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.arrived: Callable[[], bool] | None = None
        """See `changed`."""
        self._headed = False
        self._framed = False
        self._error: ReplicaFailure | None = None
        self.complete = False
        """Whether the whole response has been received. Unread data can still be taken."""
        self.keep_alive = False
        self.retry_after: str | None = None
        self._unpack: Any = None
        """Decompresses the body, of servers and proxies that compress though they were asked not to."""
        self.used = False
        """Whether an earlier exchange used this connection."""
        self.idle_since = 0.0

    @property
    def idle(self) -> bool:
        """Whether another exchange can start."""
        return (
            self.complete
            and self.keep_alive
            and self._error is None
            and not self._transport.is_closing()
        )

    @property
    def usable(self) -> bool:
        """Whether an idle connection is still open, as far as known."""
        return self._error is None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Send a request, which starts an exchange."""
        self._parser = httptools.HttpResponseParser(self)
        self._pieces.clear()
        self._size = self._without_body = 0
        self._headed = self._framed = self.complete = self.keep_alive = False
        self.retry_after = self._unpack = None
        self._transport.write(data)

    async def head(self) -> int:
        """Wait for the response head and return the status. Raises `ReplicaFailure` if none arrives."""
        while not self._headed:
            if self._error is not None:
                raise self._error
            await self.changed()
        status: int = self._parser.get_status_code()
        return status

    def take(self) -> bytes | None:
        """Data of the body received since the last call: empty if there is none yet, None at the end.

        Raises `ReplicaFailure` if the body ended early.
        """
        pieces = self._pieces
        if not pieces:
            if self.complete:
                return None
            if self._error is not None:
                raise self._error
            return b""
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return whole

    @property
    def awaited(self) -> bool:
        """Whether a reader waits for what has not come yet."""
        return self._waiter is not None and not self._waiter.done()

    def changed(self, arrived: Callable[[], bool] | None = None) -> asyncio.Future[None]:
        """A future that completes when data or the end arrives. Only one reader may wait. `arrived` is called first when data
        arrives, and if it returns True, the reader still waits."""
        self.arrived = arrived
        self._waiter = self._loop.create_future()
        return self._waiter

    async def read(self) -> bytes:
        """Like `take`, but waits for data. Returns empty bytes at the end."""
        while (data := self.take()) == b"":
            await self.changed()
        return data or b""

    def wake(self) -> None:
        """Wake the reader although nothing has arrived."""
        self._wake()

    def fail(self, reason: str) -> None:
        """Close the connection; readers get `reason`."""
        if self._error is None and not self.complete:
            self._error = ReplicaFailure(reason)
        self._transport.abort()
        self._wake()

    def close(self) -> None:
        """Close the connection."""
        self.fail("the connection was closed here")

    # Callbacks of asyncio.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self.complete:
            # No request is pending.
            self.fail("it sent what was not asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"what it sends is not HTTP: {error}")
            return
        if not self._size and not self.complete:
            self._without_body += len(data)
            if self._without_body > MAX_WITHOUT_BODY:
                self.fail("it sends a head without an end")
                return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if self.arrived is not None and self.arrived():
                return
            self._wake()  # unless what was pushed has cancelled it

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.complete and self._error is None:
            if self._headed and not self._framed:
                # A body without a length ends when the connection closes.
                self.complete = True
            else:
                self._error = ReplicaFailure(f"it hung up{f': {exc}' if exc else ''}")
        self.keep_alive = False
        self._wake()

    # Callbacks of httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self.retry_after = value.decode("latin-1")
            case b"content-encoding" if value.strip().lower() not in (b"", b"identity"):
                if value.strip().lower() not in _UNPACKED:
                    encoding = value[:40].decode("latin-1")
                    self.fail(f"it answers in the encoding {encoding}, which it was not asked for")
                else:
                    self._unpack = zlib.decompressobj(wbits=47)  # gzip or zlib, by its head
            case b"content-length" | b"transfer-encoding":
                self._framed = True

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        if self._unpack is not None:
            try:
                body = self._unpack.decompress(body, MAX_UNPACKED)
            except zlib.error as error:
                self.fail(f"what it sends is not compressed as it says: {error}")
                return
            if self._unpack.unconsumed_tail:
                self.fail("it sends what is compressed too much")
                return
            if not body:
                return
        self._pieces.append(body)
        self._size += len(body)
        self._without_body = 0
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
