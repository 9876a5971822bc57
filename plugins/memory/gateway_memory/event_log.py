"""The event log of one response: storing, replaying and following events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

_COUNTED_AT_ONCE = 4096
"""In bytes. Usage is reported in steps of this size; reporting it per token would add a tenth to the cost of storing.
"""


class EventLog:
    """Events in the order of their sequence numbers, starting at 0. Must be used on one event loop."""

    __slots__ = (
        "_complete", "_dropped", "_events", "_grown", "_limit", "_size", "_waiting", "attempt",
        "counted", "ending",
    )  # fmt: skip

    def __init__(self, grown: Callable[[int], None]) -> None:
        """`grown` is called with the number of bytes added, in batches."""
        self.counted = 0
        """Number of bytes already reported to `grown`."""
        self._size = 0
        self._limit = _COUNTED_AT_ONCE
        self.ending = False
        """True once the response has ended: only the last events are still to come."""
        self.attempt = 0
        """The attempt whose events are accepted; see `gateway.sdk.StoredResponse`."""
        self._grown = grown
        self._events: list[bytes] = []
        self._complete = False
        self._dropped = False
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def complete(self) -> bool:
        """Whether the log contains its last event."""
        return self._complete

    def append(self, events: Sequence[bytes], last: bool, attempt: int = 0) -> bool:
        """Append events. Returns False and changes nothing if the log is complete or dropped, if it belongs to
        another attempt, or if only its last events are accepted."""
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
        """End all readers immediately."""
        self._dropped = self.ending = True
        self._wake()

    def retire(self) -> None:
        """Mark the log as no longer stored. Readers of a complete log may read it to its end; all others are ended."""
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
                    if wake in self._waiting:  # the reader left before an event arrived
                        self._waiting.remove(wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
