"""Matching of a request's stop strings in the text of the answer.

Stop strings are not matched in reasoning, where they would end the output without an answer, and not in call arguments,
which they would truncate. Engines match them in the raw output, which contains both; OpenAI does not accept them for
reasoning models. The gateway matches them itself, so that the result is the same with every engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway.base.deltas import CitationEnded, CitationStarted, Delta, TextDelta
from gateway.base.errors import InvalidRequest
from gateway.engines.stopping import StopAutomaton, StopStrings
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import FinishReason
from gateway.wire.large_bodies import threaded_if_many

MAX_STOP_CHARACTERS: Final = 32_768
"""Maximum total length of a request's stop strings. OpenAI's API accepts four of 4096 characters each."""


class RequestStops:
    """The stop strings of a request, as one automaton for all of its choices and turns."""

    __slots__ = ("_automaton", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises `InvalidRequest` if the stop strings are too long."""
        self._stops = stops
        self._automaton: StopAutomaton | None = None
        if stops and (length := sum(map(len, stops))) > MAX_STOP_CHARACTERS:
            raise InvalidRequest(
                f"Invalid 'stop': the stop strings are too long. They may have {MAX_STOP_CHARACTERS} characters together, but these "
                f"have {length}. Send fewer or shorter ones.",
                param="stop",
                code="string_above_max_length",
            )

    @property
    def automaton(self) -> StopAutomaton:
        """The automaton, built when it is first used. `build` builds it without blocking other requests."""
        if self._automaton is None:
            self._automaton = StopAutomaton(self._stops)
        return self._automaton

    async def build(self) -> None:
        """Build the automaton, in a thread if it is large."""
        if self._stops and self._automaton is None:
            self._automaton = await threaded_if_many("".join(self._stops), self._made)

    def _made(self, text: str) -> StopAutomaton:
        return StopAutomaton(self._stops)


class TextStops:
    """Searches the text of one generation for stop strings, and ends the output there. The result does not depend on
    how the text was divided into deltas."""

    def __init__(
        self,
        stops: Sequence[str] | StopAutomaton,
        *,
        included: bool,
        aligner: LogprobAligner | None = None,
    ) -> None:
        """`included`: whether the stop string is part of the answer. If `aligner` is given, its tokens are cut where
        the text is cut. Text is then held back until it is known whether its whole token is part of the answer."""
        self.matched: str | None = None
        """The stop string that was found; no text follows it."""
        self.ended: FinishReason | None = None
        """Set to "stop" after a stop string was found."""
        self._strings = StopStrings(stops)
        self._included = included
        self._aligner = aligner
        self._waiting: deque[TextDelta | CitationStarted | CitationEnded] = deque()
        """The text that is held back, oldest first, and the citations within it."""
        self._gone = 0
        """Number of characters of the first delta in `_waiting` that were released."""
        self._free = 0
        """Number of held-back characters that are not part of a stop string."""

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        """Read `deltas`. Returns the deltas that are certain to be part of the answer. `searching`: whether stop
        strings are matched."""
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
        """Return the text held back at the end of the output."""
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
        self._gone = self._free = 0

    def _releasable(self) -> int:
        """Return the number of free characters that do not belong to a token that extends beyond them."""
        end = self._place(self._free)
        if self._aligner is None or end < 0:
            return self._free
        return max(0, self._free - (end - self._aligner.beginning(end)))

    def _place(self, count: int) -> int:
        """Return the offset in the raw output after the first `count` waiting characters; -1 if unknown."""
        count += self._gone
        for delta in self._waiting:
            if not isinstance(delta, TextDelta):
                continue
            if count <= len(delta.text):
                return -1 if delta.start < 0 else delta.start + count
            count -= len(delta.text)
        return -1

    def _release(self, count: int, out: list[Delta]) -> None:
        """Append `count` waiting characters to `out`, with one delta for each contiguous slice of the raw output."""
        parts: list[str] = []
        start = end = -1
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, TextDelta):
                if not count:
                    break
                begin = -1 if first.start < 0 else first.start + self._gone
                text = first.text[self._gone : self._gone + count]
                count -= len(text)
                self._gone += len(text)
                if self._gone == len(first.text):
                    self._waiting.popleft()
                    self._gone = 0
                if parts and begin != end:
                    out.append(TextDelta("".join(parts), start))
                    parts = []
                if not parts:
                    start = begin
                parts.append(text)
                end = -1 if begin < 0 else begin + len(text)
                continue
            if parts:
                out.append(TextDelta("".join(parts), start))
                parts = []
            out.append(first)
            self._waiting.popleft()
        if parts:
            out.append(TextDelta("".join(parts), start))
