"""The events of one response: kept, replayed and followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

_COUNTED_AT_ONCE = 4096
"""Bytes; with every token it would cost a tenth of what storing costs."""


class EventLog:
    """Events in the order of their sequence numbers from 0. Used on one event loop."""

    __slots__ = (
        "_complete", "_dropped", "_events", "_grown", "_limit", "_size", "_waiting", "attempt",
        "counted", "ending",
    )  # fmt: skip

    def __init__(self, grown: Callable[[int], None]) -> None:
        """`grown` is told how many bytes came in, some at a time."""
        self.counted = 0
        """Bytes of its events that were told of."""
        self._size = 0
        self._limit = _COUNTED_AT_ONCE
        self.ending = False
        """The response has ended: only the last events are to come."""
        self.attempt = 0
        """Whose events are taken: see `gateway.protocols.StoredResponse`."""
        self._grown = grown
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

    def append(self, events: Sequence[bytes], last: bool, attempt: int = 0) -> bool:
        """Add events; False, and no change, where the log is complete or dropped, or another attempt's, or where its end
        must come."""
        if attempt != self.attempt:
            return False
        if last or self.ending:
            if not last or self._complete or self._dropped:
                return False
            self._complete = self.ending = True
        if len(events) == 1:
            event = events[0]
            self._events.append(event)
            self._size += len(event)
        else:
            self._events += events
            self._size += sum(map(len, events))
        if last or self._size > self._limit:
            self._limit = self._size + _COUNTED_AT_ONCE
            added, self.counted = self._size - self.counted, self._size
            self._grown(added)
        if self._waiting:
            self._wake()
        return True

    def drop(self) -> None:
        """End every reader now."""
        self._dropped = self.ending = True
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
