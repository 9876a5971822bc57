"""Who may use one of llama.cpp's slots next."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from gateway.errors import EngineUnavailable


class Slots:
    """A fixed number of places. Waiting is by priority (lower first) and then by age, and can be cancelled.

    llama.cpp has a queue of its own, but a request that waits in it cannot be taken back.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._ages = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._closed: EngineUnavailable | None = None

    @property
    def free(self) -> int:
        return self._free

    async def acquire(self, priority: int) -> None:
        """Take a place, waiting for one. Raises `EngineUnavailable` once `close` was called."""
        if self._closed is not None:
            raise self._closed
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._ages), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        """Give a place back, to the next who waits."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self, reason: EngineUnavailable) -> None:
        """Refuse everybody who waits or comes, with `reason`."""
        self._closed = reason
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_exception(reason)
