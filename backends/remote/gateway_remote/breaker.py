"""A circuit breaker: stops asking a replica that keeps failing, and asks it again carefully."""

from __future__ import annotations

from typing import Literal, TypeAlias

State: TypeAlias = Literal["closed", "open", "half_open"]


class Breaker:
    """Closed until `failures` outcomes in a row are bad; then open for `seconds`, doubling up to `max_seconds`.

    After that it is half open: one request at a time may try, and its outcome closes or opens it. Takes the time as an
    argument, in seconds of any clock that does not run backwards.
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
        """Whether a request may go through: always when closed, one at a time when half open."""
        match self.state(now):
            case "closed":
                return True
            case "half_open":
                return not self._probing
            case "open":
                return False

    def entered(self, now: float) -> bool:
        """Note that a request goes through; True if it is the probe of a breaker that is not closed."""
        if self._open_until is None or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """A request went well: close."""
        self._in_a_row = 0
        self._times_opened = 0
        self._open_until = None
        self._probing = False

    def failed(self, now: float, *, probe: bool) -> bool:
        """A request went badly; True if that opened the breaker."""
        if probe:
            self._probing = False
        elif self._open_until is not None:
            # One of those that were on their way when it opened: they tell nothing new.
            return False
        self._in_a_row += 1
        if not probe and self._in_a_row < self._failures:
            return False
        pause = min(self._max_seconds, self._seconds * 2**self._times_opened)
        self._times_opened = min(self._times_opened + 1, 30)
        self._open_until = now + pause
        return True

    def withdrawn(self, *, probe: bool) -> None:
        """A request ended without saying anything about the replica: its client left."""
        if probe:
            self._probing = False

    def half_open(self, now: float) -> None:
        """The replica was seen to be well by other means: an open breaker may be tried now."""
        if self._open_until is not None:
            self._open_until = min(self._open_until, now)
