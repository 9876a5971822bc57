"""A request's stop strings, looked for in the text of the answer.

Not in reasoning, nor in the arguments of calls: a model that thinks of what it shall stop at would end without an answer, and
a call would be cut in two. Engines look for stop strings in their raw output, which has all of it; OpenAI takes none for
models that reason. So the gateway looks itself, and every engine gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.deltas import Delta, TextDelta
from gateway.engines.stopping import StopStrings
from gateway.loop.logprobs import LogprobAligner


class TextStops:
    """Reads the deltas of one generation. What comes out depends on the text, not on its cutting."""

    def __init__(
        self, stops: Sequence[str], *, included: bool, aligner: LogprobAligner | None = None
    ) -> None:
        """`included`: whether the stop string is a part of the answer. With `aligner`, whose tokens are cut where the text
        is, text waits until that of its token is settled.
        """
        self.matched: str | None = None
        """The stop string that was found; nothing follows it."""
        self._strings = StopStrings(stops)
        self._included = included
        self._aligner = aligner
        self._waiting: list[TextDelta] = []
        """Text that is not out, oldest first."""
        self._free = 0
        """How many characters of it are no part of a stop string."""

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        """What is sure to be of the answer. `searching` False looks for nothing."""
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is TextDelta:
                self._read_text(delta, searching, out)
                if self.matched is not None:
                    break
            else:
                out += self.rest()
                out.append(delta)
        return out

    def rest(self) -> list[Delta]:
        """The text that was held, once no text follows it."""
        out: list[Delta] = []
        self._let_out(self._free + len(self._strings.rest()), out)
        self._free = 0
        return out

    def _read_text(self, delta: TextDelta, searching: bool, out: list[Delta]) -> None:
        text, stop, _ = self._strings.feed(delta.text, searching=searching)
        if not self._waiting and text == delta.text and stop is None and self._aligner is None:
            out.append(delta)  # nearly always
            return
        self._waiting.append(delta)
        self._free += len(text)
        if stop is None:
            self._free -= (settled := self._settled())
            self._let_out(settled, out)
            return
        self.matched = stop
        if self._included:
            self._free += len(stop)
        if self._aligner is not None and (end := self._place(self._free)) >= 0:
            self._aligner.cut(end)
        self._let_out(self._free, out)
        self._waiting.clear()
        self._free = 0

    def _settled(self) -> int:
        """How many free characters are not of a token that goes on in what is not free."""
        end = self._place(self._free)
        if self._aligner is None or end < 0:
            return self._free
        return max(0, self._free - (end - self._aligner.beginning(end)))

    def _place(self, count: int) -> int:
        """Where the first `count` waiting characters end in the raw output; -1 where nobody knows."""
        for delta in self._waiting:
            if count <= len(delta.text):
                return -1 if delta.start < 0 else delta.start + count
            count -= len(delta.text)
        return -1

    def _let_out(self, count: int, out: list[Delta]) -> None:
        """Move `count` characters out, what is one slice of the raw output as one delta."""
        while count:
            first = self._waiting.pop(0)
            text, kept = first.text[:count], first.text[count:]
            count -= len(text)
            if kept:
                start = -1 if first.start < 0 else first.start + len(text)
                self._waiting.insert(0, TextDelta(kept, start))
            last = out[-1] if out else None
            if isinstance(last, TextDelta) and _goes_on(last, first.start):
                out[-1] = TextDelta(last.text + text, last.start)
            else:
                out.append(TextDelta(text, first.start))


def _goes_on(last: TextDelta, start: int) -> bool:
    return start == (-1 if last.start < 0 else last.start + len(last.text))
