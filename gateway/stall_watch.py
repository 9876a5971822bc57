"""Processes, machines and clocks that stood still, or jumped, between two looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STALL_SECONDS: Final = 5.0
"""Who looks at other processes once a second stood still itself, if more time than this has passed."""


class StallWatch:
    """For work that ends what others have not renewed in time: whoever was stopped together with this process (a suspended
    machine, a clock that was set) has had no chance to renew it."""

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
        """Begin anew: the next call of `stalled` looks back to this one."""
        self._looked = (self._monotonic(), self._wall())

    def stalled(self, seconds: float) -> bool:
        """Whether, by one of the clocks, more than `seconds` have passed since the last look. A wall clock that was set back by
        more than `seconds` counts too. This is the last look from now on."""
        before, before_wall = self._looked
        self.look()
        now, now_wall = self._looked
        passed = now - before
        return (
            passed > seconds or now_wall - before_wall > seconds or before_wall - now_wall > seconds
        )


class BeatWatch:
    """Tells when a process no longer runs its event loop: one that was stopped, or whose native code does not return."""

    def __init__(
        self,
        beats: Callable[[], int],
        seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`beats` returns what the process counts while its event loop runs, or 0 where it may take any time. `seconds` may pass
        without a change; 0: any time."""
        self._beats = beats
        self._seconds = seconds
        self._monotonic = monotonic
        self._counted = 0
        self._since = monotonic()

    def begin_anew(self) -> None:
        """Give the process its whole time again: this one has stood still itself, and perhaps both."""
        self._since = self._monotonic()

    def silent(self) -> bool:
        """Whether the process has counted nothing for its time."""
        counted, now = self._beats(), self._monotonic()
        if counted != self._counted or not counted:
            self._counted, self._since = counted, now
        return 0 < self._seconds < now - self._since
