"""The heartbeat by which a worker shows that its event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Final

BEAT_SECONDS: Final = 1.0


class Heartbeat:
    """A counter that increases while a worker's event loop runs. It is shared by the worker and its supervisor."""

    def __init__(self, context: BaseContext) -> None:
        # Only the worker writes it, so it needs no lock.
        self._beats = context.RawValue("Q", 0)
        self._count = 0
        self._opening = 0

    @property
    def beats(self) -> int:
        """The counter. It is 0 while the worker starts, opens an engine, or ends."""
        return int(self._beats.value)

    async def beat(self) -> None:
        """Increase the counter every `BEAT_SECONDS` until cancelled."""
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
        """Pause the counter at 0 while the context is entered: opening an engine in the worker may block the event
        loop."""
        self._opening += 1
        self._beats.value = 0
        try:
            yield
        finally:
            self._opening -= 1
