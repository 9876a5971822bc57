"""A priority queue for llama.cpp's slots."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from gateway.sdk import EngineUnavailable


class Slots:
    """A fixed number of slots. Waiters are ordered by priority (lower first), then by arrival, and can be cancelled.

    llama.cpp has its own queue, but a request waiting there cannot be cancelled.
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
        """Acquire a slot, waiting if none is free. Raises `EngineUnavailable` after `close`."""
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
        """Release a slot to the next waiter."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self, reason: EngineUnavailable) -> None:
        """Reject all queued and future requests with `reason`."""
        self._closed = reason
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_exception(reason)
