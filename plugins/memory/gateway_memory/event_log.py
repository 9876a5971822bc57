"""The events of one response: kept, replayed and followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence


class EventLog:
    """Events in the order of their sequence numbers from 0. Used on one event loop."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all events."""
        self._events: list[bytes] = []
        self._complete = False
        self._dropped = False
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def complete(self) -> bool:
        """Whether its last event is there."""
        return self._complete

    def append(self, events: Sequence[bytes], *, last: bool) -> int | None:
        """Add events; returns how many bytes came in, or None, and no change, where the log is complete or dropped."""
        if self._complete or self._dropped:
            return None
        self._events += events
        self._complete = last
        added = len(events[0]) if len(events) == 1 else sum(map(len, events))
        self.size += added
        if self._waiting:
            self._wake()
        return added

    def drop(self) -> None:
        """End every reader now."""
        self._dropped = True
        self._wake()

    def retire(self) -> None:
        """The log is no longer stored: those who read a complete one may read it to its end, others are ended."""
        if not self._complete:
            self.drop()

    async def read(self, after: int) -> AsyncGenerator[Sequence[bytes], None]:
        at = max(after + 1, 0)
        while not self._dropped:
            if at < len(self._events):
                batch = self._events[at:]
                at += len(batch)
                yield batch
            elif self._complete:
                return
            else:
                wake = asyncio.get_running_loop().create_future()
                self._waiting.append(wake)
                try:
                    await wake
                finally:
                    if wake in self._waiting:  # the reader left before anything came
                        self._waiting.remove(wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
