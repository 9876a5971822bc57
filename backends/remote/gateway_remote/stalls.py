"""Detects stalled streams by checking all of them periodically, which avoids a timer per token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class StallableStream(Protocol):
    """A stream that may stall."""

    @property
    def waiting_since(self) -> float | None: ...

    def stall(self) -> None: ...


class StallMonitor:
    """Ends streams whose readers have waited longer than `limit` seconds. `end_stalled` must be called periodically."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._streams: set[StallableStream] = set()
        self.now = clock()
        """Time of the last check; used as the start of new waits."""

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: StallableStream) -> None:
        self._streams.add(stream)

    def remove(self, stream: StallableStream) -> None:
        self._streams.discard(stream)

    def end_stalled(self) -> None:
        """End stalled streams. A stream whose reader is slow is not waiting and is left alone."""
        self.now = now = self._clock()
        limit = self._limit
        for stream in tuple(self._streams):
            since = stream.waiting_since
            if since is not None and now - since > limit:
                self._streams.discard(stream)
                stream.stall()
