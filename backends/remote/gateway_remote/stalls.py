"""Silent streams: found by one look at all of them now and then, so that a token costs no timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Watched(Protocol):
    """A stream that may fall silent."""

    waiting_since: float | None

    def stall(self) -> None: ...


class StallWatch:
    """Ends streams that are waited for longer than `limit` seconds. `look` must be called now and then."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._streams: set[Watched] = set()
        self.now = clock()
        """The time of the last look: what streams write down as the beginning of a wait."""

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Watched) -> None:
        self._streams.add(stream)

    def remove(self, stream: Watched) -> None:
        self._streams.discard(stream)

    def look(self) -> None:
        """End what has been waited for too long. A stream whose reader is slow is not waited for, and left alone."""
        self.now = now = self._clock()
        limit = self._limit
        for stream in tuple(self._streams):
            since = stream.waiting_since
            if since is not None and now - since > limit:
                self._streams.discard(stream)
                stream.stall()
