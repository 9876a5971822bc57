"""One HTTP/1.1 connection to a replica, parsed by httptools: what arrives together is read together.

Written for streams of small pieces, where a general client's layers cost more than the pieces themselves.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools

from gateway_remote.failures import ReplicaFailure

HIGH_WATER: Final = 128 * 1024
"""Bytes that wait here before the connection is no longer read; the kernel, and then the server, hold the rest."""


class Connection(asyncio.Protocol):
    """One exchange at a time: `send`, `head`, `read` until it gives nothing. Reusable if `idle` afterwards."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._headed = False
        self._framed = False
        self._error: ReplicaFailure | None = None
        self.complete = False
        """The answer has arrived to its end; what of it was not read yet still can be."""
        self.keep_alive = False
        self.retry_after: str | None = None
        self.used = False
        """Whether there was an exchange before this one."""
        self.idle_since = 0.0

    @property
    def idle(self) -> bool:
        """Whether another exchange may follow."""
        return (
            self.complete
            and self.keep_alive
            and self._error is None
            and not self._transport.is_closing()
        )

    @property
    def usable(self) -> bool:
        """Whether an idle connection still stands, as far as is known here."""
        return self._error is None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Begin an exchange."""
        self._parser = httptools.HttpResponseParser(self)
        self._pieces.clear()
        self._size = 0
        self._headed = self._framed = self.complete = self.keep_alive = False
        self.retry_after = None
        self._transport.write(data)

    async def head(self) -> int:
        """The answer's status, once its head has come. Raises `ReplicaFailure` where none comes."""
        while not self._headed:
            if self._error is not None:
                raise self._error
            await self.changed()
        status: int = self._parser.get_status_code()
        return status

    def take(self) -> bytes | None:
        """All of the body that has arrived and was not taken: empty if that is nothing, None if nothing can follow.

        Raises `ReplicaFailure` for a body that breaks off.
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

    def changed(self) -> asyncio.Future[None]:
        """Done once something has arrived, or nothing can. One may wait at a time."""
        self._waiter = self._loop.create_future()
        return self._waiter

    async def read(self) -> bytes:
        """As `take`, but waits where there is nothing; empty at the end."""
        while (data := self.take()) == b"":
            await self.changed()
        return data or b""

    def fail(self, reason: str) -> None:
        """Give the connection up; who reads is told why."""
        if self._error is None and not self.complete:
            self._error = ReplicaFailure(reason)
        self._transport.abort()
        self._wake()

    def close(self) -> None:
        """Give the connection up."""
        self.fail("the connection was closed here")

    # What asyncio calls.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self.complete:
            # Nothing was asked.
            self.fail("it sent what was not asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"what it sends is not HTTP: {error}")
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.complete and self._error is None:
            if self._headed and not self._framed:
                # A body without a length ends with its connection.
                self.complete = True
            else:
                self._error = ReplicaFailure(f"it hung up{f': {exc}' if exc else ''}")
        self.keep_alive = False
        self._wake()

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self.retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._framed = True

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._size += len(body)
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
