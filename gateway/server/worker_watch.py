"""How a worker shows that its event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
