"""Sends the head of an answer and the first part of its body together."""

from __future__ import annotations

import asyncio

from gateway.http.connections.delegating_transport import DelegatingTransport

_HEAD = b"HTTP/"
_COPIED = 16_384
"""Maximum number of bytes of a first part that is copied, to be written with the head."""


class JoinedHeadTransport(DelegatingTransport):
    """Holds the head of an answer until the next write, or until the next iteration of the event loop.

    uvicorn writes a head and a body separately. Each write would be a system call and a packet of its own.
    """

    __slots__ = ("_flush", "_held", "_loop")

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(inner)
        self._loop = loop
        self._held = b""
        """The head that is not written yet."""
        self._flush: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._held:
            held, self._held = self._held, b""
            if self._flush is not None:
                self._flush.cancel()
                self._flush = None
            if len(data) <= _COPIED:
                self.inner.write(held + data)
            else:
                self.inner.writelines((held, data))
        elif data[:5] == _HEAD:
            self._held = bytes(data)
            self._flush = self._loop.call_soon(self._write_held)
        else:
            self.inner.write(data)

    def _write_held(self) -> None:
        self._flush = None
        if self._held:
            held, self._held = self._held, b""
            self.inner.write(held)

    def close(self) -> None:
        self._write_held()
        self.inner.close()

    def abort(self) -> None:
        self._held = b""
        self.inner.abort()

    def get_write_buffer_size(self) -> int:
        return len(self._held) + self.inner.get_write_buffer_size()
