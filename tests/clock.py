"""A clock for tests."""

from __future__ import annotations


class Clock:
    """Returns `now`, seconds, which pass when a test adds to them."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
