"""Tells whether this process, its machine or the machine's clock stood still, or jumped, between two looks."""

from __future__ import annotations

import time
from collections.abc import Callable


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
