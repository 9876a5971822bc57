"""Answers to HTTP/1.0 clients, which do not support chunks: a body of unknown length ends when the connection is
closed."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.http.connections.delegating_transport import DelegatingTransport

_CHUNKED: Final = b"\r\ntransfer-encoding: chunked\r\n"


class UnchunkedTransport(DelegatingTransport):
    """A transport that removes the chunk framing from an answer's body. uvicorn sends chunks to HTTP/1.0 clients too,
    which a server must not do (RFC 9112, 6.1). Relies on uvicorn writing the head, and each chunk, in one call."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__(inner)
        self._is_head = True
        self._is_chunked = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        written = bytes(data)
        if self._is_head:
            self._write_head(written)
        else:
            self.inner.write(_content(written) if self._is_chunked else written)

    def _write_head(self, head: bytes) -> None:
        if head.startswith(b"HTTP/1.1 100 "):
            return  # not sent to HTTP/1.0 clients (RFC 9110, 10.1.1)
        self._is_head = False
        lines, end, rest = head.partition(b"\r\n\r\n")
        plain = (lines + b"\r\n").replace(_CHUNKED, b"\r\n", 1)
        self._is_chunked = len(plain) < len(lines) + 2
        self.inner.write(plain + end[2:] + rest)


def _content(chunks: bytes) -> bytes:
    """The content of complete chunks."""
    parts: list[bytes] = []
    at = 0
    while at < len(chunks):
        line = chunks.index(b"\r\n", at)
        size = int(chunks[at:line], 16)
        parts.append(chunks[line + 2 : line + 2 + size])
        at = line + size + 4
    return b"".join(parts)
