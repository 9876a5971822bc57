"""Whose turn it is: one process at a time works in a container."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_PAUSE = 0.05
"""Seconds between two looks at a container that another process uses."""


class Turn:
    """A lock between processes on one container, which the calls within one process share.

    It is the kernel's, on a file: it ends with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._holders = 0
        self._waiting = asyncio.Lock()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Waits until no other process works in the container."""
        async with self._waiting:
            if self._descriptor is None:
                self._descriptor = await _locked(self._path)
            self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0:
                os.close(self._descriptor)
                self._descriptor = None


async def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_PAUSE)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
