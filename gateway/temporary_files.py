"""Files that are in memory while they are small, and otherwise in the system's folder for temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from gateway.errors import StoreUnavailable


@contextmanager
def temporary_file(in_memory: int) -> Iterator[IO[bytes]]:
    """A file of up to `in_memory` bytes in memory. Writing more raises `StoreUnavailable` if the disk has no room for it, at
    `flush` at the latest."""
    content = _Spooled(in_memory)
    try:
        yield cast("IO[bytes]", content)
    finally:
        with suppress(OSError):  # writing what is buffered fails again
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
