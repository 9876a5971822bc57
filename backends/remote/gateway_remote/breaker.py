"""A circuit breaker: stops requests to a replica that keeps failing, then probes it."""

from __future__ import annotations

from typing import Literal, TypeAlias

State: TypeAlias = Literal["closed", "open", "half_open"]


class Breaker:
    """Opens after `failures` consecutive failures, for `seconds`, doubling up to `max_seconds`.

    Then it is half open: one request at a time may probe, and its outcome closes or reopens it. Methods take the
    current time in seconds of any monotonic clock.
    """

    def __init__(self, *, failures: int, seconds: float, max_seconds: float) -> None:
        self._failures = failures
        self._seconds = seconds
        self._max_seconds = max_seconds
        self._in_a_row = 0
        self._times_opened = 0
        self._open_until: float | None = None
        self._probing = False

    def state(self, now: float) -> State:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def admits(self, now: float) -> bool:
        """Whether a request is admitted: always when closed, one at a time when half open."""
        match self.state(now):
            case "closed":
                return True
            case "half_open":
                return not self._probing
            case "open":
                return False

    def entered(self, now: float) -> bool:
        """Record that a request starts. Returns True if it is the probe of a breaker that is not closed."""
        if self._open_until is None or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Record a success; closes the breaker."""
        self._in_a_row = 0
        self._times_opened = 0
        self._open_until = None
        self._probing = False

    def failed(self, now: float, *, probe: bool) -> bool:
        """Record a failure. Returns True if it opened the breaker."""
        if probe:
            self._probing = False
        elif self._open_until is not None:
            # It was in flight when the breaker opened, so it carries no new information.
            return False
        self._in_a_row += 1
        if not probe and self._in_a_row < self._failures:
            return False
        pause = min(self._max_seconds, self._seconds * 2**self._times_opened)
        self._times_opened = min(self._times_opened + 1, 30)
        self._open_until = now + pause
        return True

    def withdrawn(self, *, probe: bool) -> None:
        """Record a request that ended without an outcome, for example because its client disconnected."""
        if probe:
            self._probing = False

    def half_open(self, now: float) -> None:
        """Make an open breaker half open, because a health check succeeded."""
        if self._open_until is not None:
            self._open_until = min(self._open_until, now)
