"""Mutual exclusion: one process at a time works in a container."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_PAUSE = 0.05
"""Interval between attempts to lock a container that another process uses, in seconds."""


class ContainerLock:
    """A lock on one container between processes, shared by the calls within one process.

    It is a kernel lock on a file: it is released when the process ends, for whatever reason.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._holders = 0
        self._waiting = asyncio.Lock()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock. Waits until no other process works in the container."""
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
