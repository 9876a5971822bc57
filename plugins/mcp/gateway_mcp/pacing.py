"""Rate limits on the work that a server can cause."""

from __future__ import annotations

import asyncio
import time


class TokenBucket:
    """A token bucket that allows `burst` units at once and `rate` units per second after that."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = time.monotonic()

    def take(self, units: float = 1.0) -> float:
        """Take `units`. Returns the seconds until they are available; 0 if they are available now."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - units
        self._at = now
        return max(-self._left / self._rate, 0.0)

    async def wait(self, units: float = 1.0) -> None:
        """Take `units` and wait until they are available."""
        if seconds := self.take(units):
            await asyncio.sleep(seconds)
