"""API keys in a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.access.access import Authenticator
from gateway.base.errors import ConfigurationError
from gateway.base.task_context import running_task
from gateway.config import ApiKey, read_keys

logger = logging.getLogger("gateway.access.keys")

WATCH_SECONDS = 0.5
"""Interval between checks of the file, in seconds."""
_Stamp = tuple[int, int, int]


class WatchedKeysFile:
    """The API keys of `server.keys_file`, read again when the file changes."""

    def __init__(self, path: Path | None, authenticator: Authenticator) -> None:
        """`path`: None if there is no file."""
        self._path = path
        self._authenticator = authenticator
        self._stamp: _Stamp | None = None

    def load(self) -> None:
        """Read the file. Raises `ConfigurationError`."""
        if self._path is not None:
            self._stamp = _stamp(self._path)
            self._use(read_keys(self._path))

    @staticmethod
    async def read(path: Path | None) -> tuple[_Stamp | None, list[ApiKey]]:
        """Read another file, for `change`. Raises `ConfigurationError`."""
        if path is None:
            return None, []
        stamp = await asyncio.to_thread(_stamp, path)
        return stamp, await asyncio.to_thread(read_keys, path)

    def change(self, path: Path | None, found: tuple[_Stamp | None, list[ApiKey]]) -> None:
        """Use the keys of another file instead of the present one from now on. `found` is the result of `read`."""
        if path == self._path:
            return
        if self._path is not None:
            self._use([])
        self._path = path
        self._stamp, keys = found
        if path is not None:
            self._use(keys)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Read the file again whenever it changes, while the context is entered. If the file has a mistake, the
        previous keys stay in use."""
        async with running_task(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if (path := self._path) is None:
                continue
            try:
                stamp = await asyncio.to_thread(_stamp, path)
                if stamp == self._stamp or path != self._path:
                    continue
                self._stamp = stamp
                keys = await asyncio.to_thread(read_keys, path)
                if path != self._path:  # a reload has changed it meanwhile
                    continue
                self._use(keys)
            except ConfigurationError as error:
                logger.error("the keys stay as they were: %s", error)  # noqa: TRY400  # a sentence, not a trace
            except Exception:
                # The task must go on: without it, a revoked key would be accepted forever.
                logger.exception("reading the keys of %s failed; they stay as they were", path)
            else:
                logger.info("read %d API keys from %s", len(keys), path)

    def _use(self, keys: list[ApiKey]) -> None:
        self._authenticator.use_keys(str(self._path), keys)


def _stamp(path: Path) -> _Stamp | None:
    """A value that changes when the file changes; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
