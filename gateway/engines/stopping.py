"""Stop strings over text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the first stop string, wherever the pieces are cut; holds back only what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self.held = ""
        """Text that begins a stop string, as far as it goes."""

    def feed(self, text: str, *, searching: bool = True) -> tuple[str, str | None, str]:
        """Text that may go out, the stop string that ended it or None, and what came after that.

        `searching` False lets everything out.
        """
        if not self._stops:
            return text, None, ""
        text = self.held + text
        self.held = ""
        if not searching:
            return text, None, ""
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # Of two that begin at one place the longer is the one that the text spells.
            at, stop = min(found, key=lambda hit: (hit[0], -len(hit[1])))
            return text[:at], stop, text[at + len(stop) :]
        keep = max(_overlap(text, stop) for stop in self._stops)
        if keep:
            self.held = text[-keep:]
            text = text[:-keep]
        return text, None, ""

    def rest(self) -> str:
        """What was held, once nothing follows."""
        rest, self.held = self.held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest proper beginning of `stop` that `text` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
