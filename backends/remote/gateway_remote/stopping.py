"""Matches stop strings in streamed text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StopMatch(NamedTuple):
    """A match of a stop string."""

    stop: str
    after: str
    """Text already received after the stop string."""


class StopFinder:
    """Finds the first stop string, however the text is split. Holds back only text that may be part of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self.held = ""

    def feed(self, text: str) -> tuple[str, StopMatch | None]:
        """Returns text that can be emitted, and the stop string after it if one was found."""
        text, self.held = self.held + text, ""
        first: tuple[int, int, str] | None = None
        for stop in self._stops:
            at = text.find(stop)
            # If two start at the same place, the longer one wins.
            if at >= 0 and (first is None or (at, -len(stop)) < first[:2]):
                first = (at, -len(stop), stop)
        if first is not None:
            at, _, stop = first
            return text[:at], StopMatch(stop, text[at + len(stop) :])
        keep = max(_partial_stop(text, stop) for stop in self._stops)
        if keep:
            self.held = text[-keep:]
            return text[:-keep], None
        return text, None

    def rest(self) -> str:
        """Returns the held text at the end of the output."""
        rest, self.held = self.held, ""
        return rest


def _partial_stop(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
