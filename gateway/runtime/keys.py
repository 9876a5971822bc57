"""Keys that change while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.config import ApiKey, read_keys
from gateway.errors import ConfigurationError
from gateway.runtime.access import Authenticator
from gateway.task_context import running_task

logger = logging.getLogger("gateway.runtime.keys")

WATCH_SECONDS = 0.5
"""Interval between looks at the file."""
_Stamp = tuple[int, int, int]


class WatchedKeysFile:
    """The keys of `server.keys_file`, read again when the file changes."""

    def __init__(self, path: Path, authenticator: Authenticator) -> None:
        self._path = path
        self._authenticator = authenticator
        self._stamp: _Stamp | None = None

    def load(self) -> None:
        """Read the file. Raises `ConfigurationError`."""
        self._stamp = self._look()
        self._use(read_keys(self._path))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """While entered, the file is read again when it changes. A file with a mistake changes nothing."""
        async with running_task(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                stamp = await asyncio.to_thread(self._look)
                if stamp == self._stamp:
                    continue
                self._stamp = stamp
                keys = await asyncio.to_thread(read_keys, self._path)
                self._use(keys)
            except ConfigurationError as error:
                logger.error("the keys stay as they were: %s", error)  # noqa: TRY400  # a sentence, not a trace
            except Exception:
                # Without this task, a revoked key would be accepted for ever.
                logger.exception(
                    "reading the keys of %s failed; they stay as they were", self._path
                )
            else:
                logger.info("read %d API keys from %s", len(keys), self._path)

    def _use(self, keys: list[ApiKey]) -> None:
        self._authenticator.use_keys(str(self._path), keys)

    def _look(self) -> _Stamp | None:
        """What changes when the file does; None if there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
