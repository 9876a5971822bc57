"""Decompresses request bodies (gzip and zstd) within the size limit for uncompressed bodies."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from gateway.base.errors import InvalidRequest, PayloadTooLarge

MAX_WINDOW = 23
"""Binary logarithm of the largest window of a zstd frame: 8 MiB, as RFC 9659 requires of senders."""
MAX_PARTS = 64
"""Maximum number of gzip members or zstd frames in one body. Each costs a copy of the data after it."""
_ON_LOOP = 64 * 1024
"""Number of bytes, compressed or not, up to which a body is decompressed on the event loop."""
_STEP = 1024 * 1024


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """Decompresses a gzip member. Keeps input that is not decompressed yet, as the standard library's decompressors
    do."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _zstd() -> _Decompressor:
    return zstd.ZstdDecompressor(
        options={int(zstd.DecompressionParameter.window_log_max): MAX_WINDOW}
    )


CODINGS: dict[str, Callable[[], _Decompressor]] = {"gzip": _Gzip, "x-gzip": _Gzip, "zstd": _zstd}
"""The supported content codings."""


async def decompressed(body: bytes, coding: str, limit: int) -> bytes:
    """Decompress `body`. Long bodies are decompressed in a thread.

    Raises `PayloadTooLarge` as soon as the result exceeds `limit` bytes, and `InvalidRequest` for a damaged or
    incomplete body.
    """
    work = _Work(body, coding, limit)
    if len(body) > _ON_LOOP or not work.advance(_ON_LOOP):
        await asyncio.to_thread(work.finish)
    return work.result()


class _Work:
    def __init__(self, body: bytes, coding: str, limit: int) -> None:
        self._coding, self._limit = coding, limit
        self._input = body
        self._decompressor = CODINGS[coding]()
        self._parts = 1
        self._made: list[bytes] = []
        self._size = 0

    def result(self) -> bytes:
        return b"".join(self._made)

    def finish(self) -> None:
        while not self.advance(_STEP):
            pass

    def advance(self, most: int) -> bool:
        """Decompress up to `most` bytes. Returns whether the end of the body was reached."""
        given, self._input = self._input, b""
        most = min(most, self._limit - self._size + 1)
        try:
            made = self._decompressor.decompress(given, most)
        except (zlib.error, zstd.ZstdError):
            raise self._damaged() from None
        self._made.append(made)
        self._size += len(made)
        if self._size > self._limit:
            raise PayloadTooLarge(
                f"The body, decompressed, is larger than this server's limit of {self._limit} bytes."
            )
        if not self._decompressor.eof:
            if not made:
                raise self._damaged()
            return False
        self._input = self._decompressor.unused_data
        if not self._input:
            return True
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise self._damaged()
        self._decompressor = CODINGS[self._coding]()
        return False

    def _damaged(self) -> InvalidRequest:
        return InvalidRequest(
            f"The body is not valid {self._coding} data, or it is incomplete.",
            code="invalid_encoding",
        )
