"""Which workers no longer run their event loop: stopped processes, and native code that does not return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Final

BEAT_SECONDS: Final = 1.0


class Heartbeat:
    """Counts while a worker's event loop runs. The worker's process and its supervisor's share it."""

    def __init__(self, context: BaseContext) -> None:
        # Only the worker writes it, so that it needs no lock.
        self._beats = context.RawValue("Q", 0)
        self._count = 0
        self._opening = 0

    @property
    def beats(self) -> int:
        """0 while the worker starts, while it opens an engine, and when it ends."""
        return int(self._beats.value)

    async def beat(self) -> None:
        """Count once in `BEAT_SECONDS`, until this is cancelled."""
        try:
            while True:
                if not self._opening:
                    self._count += 1
                    self._beats.value = self._count
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self._beats.value = 0

    @contextmanager
    def opening(self) -> Iterator[None]:
        """While entered, nothing is counted: an engine is opened in the worker, and may keep the event loop from running."""
        self._opening += 1
        self._beats.value = 0
        try:
            yield
        finally:
            self._opening -= 1


class WorkerWatch:
    """Tells when a worker has not counted for `seconds`; 0 is never. `beats` returns its count."""

    def __init__(
        self,
        beats: Callable[[], int],
        seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beats = beats
        self._seconds = seconds
        self._monotonic = monotonic
        self._counted = 0
        self._since = monotonic()

    def begin_anew(self) -> None:
        """Give the worker its whole time again: the supervisor itself has stood still, and perhaps both."""
        self._since = self._monotonic()

    def silent(self) -> bool:
        """Whether the worker has counted nothing for its time. One that starts, opens an engine or ends is not silent."""
        counted, now = self._beats(), self._monotonic()
        if counted != self._counted or not counted:
            self._counted, self._since = counted, now
        return 0 < self._seconds < now - self._since
