"""The bound on how many finished things are kept: responses, and chat completions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.errors import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.server import Server

logger = logging.getLogger("gateway_redis")

_AT_ONCE = 1000
_EVICTED_AT_ONCE = 16


class FinishedIndex:
    """Notes what has finished, beside the requests, and evicts the oldest beyond a number."""

    def __init__(
        self,
        server: Server,
        key: str,
        *,
        most: int,
        seconds: float,
        evict: Callable[[str], Awaitable[object]],
    ) -> None:
        self._server = server
        self._key = key
        self._most = most
        self._seconds = int(seconds) + 1
        self._evict = evict
        self._new: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, name: str) -> None:
        """Note one that has finished."""
        self._new.append(name)
        if self._task is None:
            self._task = asyncio.create_task(self._note())

    async def close(self) -> None:
        """Wait until all are noted."""
        if self._task is not None:
            await self._task

    async def _note(self) -> None:
        try:
            while self._new:
                some, self._new = self._new[:_AT_ONCE], self._new[_AT_ONCE:]
                out = await self._server.run(
                    scripts.INDEX, [self._key], [self._most, self._seconds, *some]
                )
                for start in range(0, len(out), _EVICTED_AT_ONCE):
                    some_out = out[start : start + _EVICTED_AT_ONCE]
                    await asyncio.gather(*(self._evict(each.decode()) for each in some_out))
        except StoreUnavailable as error:
            # Those that were not noted expire by their time alone.
            logger.warning("what has finished could not be counted: %s", error.message)
        finally:
            self._task = None
