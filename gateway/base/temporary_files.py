"""Temporary files that are kept in memory while they are small, and otherwise on disk in the system's temporary
folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from gateway.base.errors import StoreUnavailable


@contextmanager
def temporary_file(in_memory: int) -> Iterator[IO[bytes]]:
    """A temporary file that moves from memory to disk when it is larger than `in_memory` bytes.

    If the disk has no room, writing raises `StoreUnavailable`, at the latest in `flush`.
    """
    content = _Spooled(in_memory)
    try:
        yield cast("IO[bytes]", content)
    finally:
        with suppress(OSError):  # closing writes the buffer, which may fail again
            content.close()


class _Spooled(tempfile.SpooledTemporaryFile[bytes]):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _no_room(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _no_room(error) from error


def _no_room(error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The server cannot keep this file now ({error.strerror or error}). Retry later."
    )
