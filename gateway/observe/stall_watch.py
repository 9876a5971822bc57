"""Detection of stalls: of this process, its machine or its clocks (`StallWatch`), and of other processes
(`BeatWatch`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STALL_SECONDS: Final = 5.0
"""A process that checks others once a second was stalled itself if more than this many seconds passed between two
checks."""


class StallWatch:
    """Detects that this process was stalled between two checks, by a suspended machine or a clock that was set.

    For code that expires leases of other processes: a process that was stalled together with this one could not renew
    its leases in time.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Both clocks return seconds."""
        self._monotonic = monotonic
        self._wall = wall
        self._looked = (monotonic(), wall())

    def look(self) -> None:
        """Start a new interval: the next call of `stalled` measures from this call."""
        self._looked = (self._monotonic(), self._wall())

    def stalled(self, seconds: float) -> bool:
        """Whether more than `seconds` have passed on either clock since the last call of `look` or `stalled`.

        Also True if the wall clock was set back by more than `seconds`. Starts a new interval.
        """
        before, before_wall = self._looked
        self.look()
        now, now_wall = self._looked
        passed = now - before
        return (
            passed > seconds or now_wall - before_wall > seconds or before_wall - now_wall > seconds
        )


class BeatWatch:
    """Detects that a process no longer runs its event loop, because it was stopped or native code does not return."""

    def __init__(
        self,
        beats: Callable[[], int],
        seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`beats` returns a counter that the process increments while its event loop runs, or 0 while the process is
        allowed to block. `seconds` is the longest allowed time without a change of the counter; 0: no limit."""
        self._beats = beats
        self._seconds = seconds
        self._monotonic = monotonic
        self._counted = 0
        self._since = monotonic()

    def begin_anew(self) -> None:
        """Restart the time limit. For a stall of the watching process, which may have affected the watched one too."""
        self._since = self._monotonic()

    def silent(self) -> bool:
        """Whether the counter has not changed for longer than the time limit."""
        counted, now = self._beats(), self._monotonic()
        if counted != self._counted or not counted:
            self._counted, self._since = counted, now
        return 0 < self._seconds < now - self._since
