"""Stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """Where a text ends."""

    stop: str
    after: str
    """What had come after the stop string already."""


class StopFinder:
    """Finds the first stop string wherever the pieces are cut, and holds back only what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self.held = ""

    def feed(self, text: str) -> tuple[str, Found | None]:
        """Text that may go out, and the stop string behind it if there is one."""
        text, self.held = self.held + text, ""
        first: tuple[int, int, str] | None = None
        for stop in self._stops:
            at = text.find(stop)
            # Of two that begin at one place, the longer is the one that the text spells.
            if at >= 0 and (first is None or (at, -len(stop)) < first[:2]):
                first = (at, -len(stop), stop)
        if first is not None:
            at, _, stop = first
            return text[:at], Found(stop, text[at + len(stop) :])
        keep = max(_begun(text, stop) for stop in self._stops)
        if keep:
            self.held = text[-keep:]
            return text[:-keep], None
        return text, None

    def rest(self) -> str:
        """What was held, once nothing can follow."""
        rest, self.held = self.held, ""
        return rest


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop` without completing it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
