"""Admission control: limits on a model's running and queued requests. Requests beyond the limits are rejected at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from gateway.errors import RateLimited


class Admission:
    """Admits requests to one model: `max_running` run concurrently, `max_waiting` more queue in FIFO order, others are
    rejected."""

    def __init__(
        self,
        name: str,
        *,
        max_running: int,
        max_waiting: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._slots = asyncio.Semaphore(max_running)
        self._clock = clock
        self._mean_seconds = 1.0
        self.running = 0
        self.waiting = 0

    def reserve(self) -> Reservation:
        """Reserve a place, running or queued. Raises `RateLimited` with `retry_after` if there is none.

        Synchronous, so that a rejection is an HTTP 429 before the answer has begun. The reservation must be entered or
        cancelled.
        """
        if self.running + self.waiting >= self._max_running + self._max_waiting:
            waves = self.waiting / self._max_running + 1
            raise RateLimited(
                f"The model '{self._name}' is at its limit of {self._max_running} running and {self._max_waiting} "
                "waiting requests. Retry later.",
                retry_after=max(1, min(60, math.ceil(self._mean_seconds * waves))),
            )
        self.waiting += 1
        return Reservation(self)

    async def _begin(self) -> float:
        """Wait for a slot. Returns the time at which it was assigned."""
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        return self._clock()

    def _end(self, started: float) -> None:
        self._mean_seconds += 0.05 * (self._clock() - started - self._mean_seconds)
        self.running -= 1
        self._slots.release()


class Reservation:
    """A place in a model's queue. Enter it once, which waits for a slot and holds it until exit; or `cancel()` it."""

    __slots__ = ("_admission", "_running_in", "_started")

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission
        """None once it was entered or cancelled."""
        self._running_in = admission
        self._started = 0.0

    async def __aenter__(self) -> None:
        admission = self._admission
        if admission is None:
            raise RuntimeError("a reservation is used once")
        self._admission = None
        self._started = await admission._begin()

    async def __aexit__(self, *exc_info: object) -> None:
        self._running_in._end(self._started)

    def cancel(self) -> None:
        """Release the place if it was not used. Idempotent; does nothing after use."""
        if self._admission is not None:
            self._admission.waiting -= 1
            self._admission = None
