"""Finding stop strings in streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the stop string that ends first, of several that end there the longest. How the text is chunked changes nothing. Holds
    back only text that may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self.held = ""
        """The beginning of a possible stop string."""

    def feed(self, text: str, *, searching: bool = True) -> tuple[str, str | None, str]:
        """Returns the text to release, the stop string that ended it or None, and the text after it.

        If `searching` is False, all text is released.
        """
        if not self._stops:
            return text, None, ""
        text = self.held + text
        self.held = ""
        if not searching:
            return text, None, ""
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # A longer one that begins earlier may not be complete yet in a shorter chunk.
            at, stop = min(found, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
            return text[:at], stop, text[at + len(stop) :]
        keep = max(_overlap(text, stop) for stop in self._stops)
        if keep:
            self.held = text[-keep:]
            text = text[:-keep]
        return text, None, ""

    def rest(self) -> str:
        """The text held back at the end of the output."""
        rest, self.held = self.held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest proper prefix of `stop` that `text` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
