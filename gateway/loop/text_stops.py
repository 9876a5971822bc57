"""Matching of a request's stop strings in the text of the answer.

Stop strings are not matched in reasoning, where they would end the output without an answer, nor in call arguments,
which they would truncate. Engines match them in the raw output, which contains both; OpenAI does not accept them for
reasoning models. The gateway matches them itself, so that every engine gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.assembly.logprobs import LogprobAligner
from gateway.deltas import CitationEnded, CitationStarted, Delta, TextDelta
from gateway.engines.stopping import StopStrings
from gateway.protocols import FinishReason


class TextStops:
    """Searches the text of one generation for stop strings, and ends it there. The result depends on the text, not on how it
    was divided into deltas."""

    def __init__(
        self, stops: Sequence[str], *, included: bool, aligner: LogprobAligner | None = None
    ) -> None:
        """`included`: whether the stop string is part of the answer. With `aligner`, whose tokens are cut where the
        text is cut, text is held back until its whole token is decided."""
        self.matched: str | None = None
        """The stop string that was found; no text follows it."""
        self.ended: FinishReason | None = None
        """`stop`, once a stop string was found."""
        self._strings = StopStrings(stops)
        self._included = included
        self._aligner = aligner
        self._waiting: list[TextDelta | CitationStarted | CitationEnded] = []
        """Text held back, oldest first, and the citations within it."""
        self._free = 0
        """Number of held-back characters that are not part of a stop string."""

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        """The deltas that are certain to be part of the answer. If `searching` is False, stop strings are not matched."""
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is TextDelta:
                self._read_text(delta, searching, out)
                if self.matched is not None:
                    break
            elif isinstance(delta, CitationStarted | CitationEnded):  # the text continues
                (self._waiting if self._waiting else out).append(delta)
            else:
                out += self.rest()
                out.append(delta)
        return out

    def rest(self) -> list[Delta]:
        """The text held back at the end of the output."""
        out: list[Delta] = []
        self._release(self._free + len(self._strings.rest()), out)
        self._free = 0
        return out

    def _read_text(self, delta: TextDelta, searching: bool, out: list[Delta]) -> None:
        text, stop, _ = self._strings.feed(delta.text, searching=searching)
        if not self._waiting and text == delta.text and stop is None and self._aligner is None:
            out.append(delta)  # the common case
            return
        self._waiting.append(delta)
        self._free += len(text)
        if stop is None:
            self._free -= (settled := self._releasable())
            self._release(settled, out)
            return
        self.matched, self.ended = stop, "stop"
        if self._included:
            self._free += len(stop)
        if self._aligner is not None and (end := self._place(self._free)) >= 0:
            self._aligner.cut(end)
        self._release(self._free, out)
        self._waiting.clear()
        self._free = 0

    def _releasable(self) -> int:
        """Number of free characters that do not belong to a token that extends beyond them."""
        end = self._place(self._free)
        if self._aligner is None or end < 0:
            return self._free
        return max(0, self._free - (end - self._aligner.beginning(end)))

    def _place(self, count: int) -> int:
        """Offset in the raw output of the end of the first `count` waiting characters; -1 if unknown."""
        for delta in self._waiting:
            if not isinstance(delta, TextDelta):
                continue
            if count <= len(delta.text):
                return -1 if delta.start < 0 else delta.start + count
            count -= len(delta.text)
        return -1

    def _release(self, count: int, out: list[Delta]) -> None:
        """Release `count` characters, with one delta per slice of the raw output."""
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, TextDelta):
                out.append(self._waiting.pop(0))
                continue
            if not count:
                break
            self._waiting.pop(0)
            text, kept = first.text[:count], first.text[count:]
            count -= len(text)
            if kept:
                start = -1 if first.start < 0 else first.start + len(text)
                self._waiting.insert(0, TextDelta(kept, start))
            last = out[-1] if out else None
            if isinstance(last, TextDelta) and _continues(last, first.start):
                out[-1] = TextDelta(last.text + text, last.start)
            else:
                out.append(TextDelta(text, first.start))


def _continues(last: TextDelta, start: int) -> bool:
    return start == (-1 if last.start < 0 else last.start + len(last.text))
