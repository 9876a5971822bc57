"""Admission control: limits on a model's running and queued requests. Requests beyond the limits are rejected at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from gateway.errors import EngineUnavailable, RateLimited


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
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """`on_idle` is called when the last request has ended, or was cancelled."""
        self._name = name
        self._on_idle = on_idle
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._slots = asyncio.Semaphore(max_running)
        self._clock = clock
        self._mean_seconds = 1.0
        self._surplus = 0
        """Slots to be taken away when a request ends."""
        self.is_open = True
        """Whether the model is loaded, so that requests are admitted."""
        self.running = 0
        self.waiting = 0

    def resize(self, max_running: int, max_waiting: int) -> None:
        """Change the limits. Requests that run or wait already are not affected."""
        change = max_running - self._max_running
        self._max_running, self._max_waiting = max_running, max_waiting
        for _ in range(change):
            if self._surplus:
                self._surplus -= 1
            else:
                self._slots.release()
        self._surplus += max(0, -change)

    def reserve(self) -> Reservation:
        """Reserve a place, running or queued. Raises `RateLimited` with `retry_after` if there is none.

        Synchronous, so that a rejection is an HTTP 429 before the answer has begun. The reservation must be entered or
        cancelled. Raises `EngineUnavailable` if the model was unloaded.
        """
        if not self.is_open:
            raise EngineUnavailable(
                f"The model '{self._name}' has just been unloaded. Send the request again: it is loaded again then."
            )
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
            while True:
                await self._slots.acquire()
                if not self._surplus:
                    break
                self._surplus -= 1  # this slot was taken away
        except BaseException:
            self._left()
            raise
        self.waiting -= 1
        self.running += 1
        return self._clock()

    def _end(self, started: float) -> None:
        self._mean_seconds += 0.05 * (self._clock() - started - self._mean_seconds)
        self.running -= 1
        if self._surplus:
            self._surplus -= 1
        else:
            self._slots.release()
        self._check_idle()

    def _left(self) -> None:
        """A request has left the queue."""
        self.waiting -= 1
        self._check_idle()

    def _check_idle(self) -> None:
        if self._on_idle is not None and not self.running and not self.waiting:
            self._on_idle()


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
            admission, self._admission = self._admission, None
            admission._left()
