"""Counts the output tokens that start inside reasoning. For parsers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from gateway.plugins.protocols import Tokenizer


class OutputSpan:
    """A span of output that is either reasoning or text. `is_reasoning` is None while this is undecided."""

    __slots__ = ("is_reasoning", "tokens")

    def __init__(self, is_reasoning: bool | None) -> None:
        self.is_reasoning = is_reasoning
        self.tokens = 0


class ReasoningMeter:
    """Assigns tokens to spans and counts those inside reasoning. Offsets are in characters of the whole output.

    A parser calls `begin_span` at each change between reasoning and text. It calls `count` for each output, after
    searching it for markers. `total` then does not depend on how tokens are grouped into outputs. The count is exact
    if each output has one token. If an output has several tokens, their starts are computed from the tokens' bytes;
    if these do not match the text (half a character, a hidden token), the starts are spread evenly.
    """

    __slots__ = ("_borders", "_pending", "_span", "_tokenizer", "settled", "total")

    def __init__(self, tokenizer: Tokenizer | None, *, reasoning: bool) -> None:
        self.total = 0
        self.settled = True
        """Whether all tokens until the next `begin_span` have the kind of the latest tokens."""
        self._tokenizer = tokenizer
        self._span = OutputSpan(reasoning)
        self._borders: list[tuple[int, OutputSpan]] = []
        self._pending: list[float] = []
        """Starts of tokens that are not assigned yet, because their text is undecided."""

    def begin_span(self, offset: int, is_reasoning: bool | None) -> OutputSpan:
        """Begin a span at `offset`. `is_reasoning` is None if its kind is undecided until `settle`."""
        span = OutputSpan(is_reasoning)
        self._borders.append((offset, span))
        self.settled = False
        return span

    def settle(self, span: OutputSpan, *, reasoning: bool) -> None:
        """Set the kind of an undecided span."""
        span.is_reasoning = reasoning
        if reasoning:
            self.total += span.tokens
        self._update()

    def add(self, tokens: int) -> None:
        """Count tokens of the latest kind. Call this only while `settled` is true and no text is undecided."""
        span = self._span
        span.tokens += tokens
        if span.is_reasoning:
            self.total += tokens

    def count(self, text: str, token_ids: Sequence[int], end: int, held: int) -> None:
        """Count the tokens of an output whose `text` ends at offset `end`. The last `held` characters are undecided."""
        start = end - len(text)
        starts = (
            [float(start)]
            if len(token_ids) == 1
            else [start + each for each in self._starts(text, token_ids)]
        )
        self._assign([*self._pending, *starts], end - held)

    def finish(self) -> None:
        """Count the pending tokens at the end of the output."""
        self._assign(self._pending, math.inf)

    def _assign(self, starts: Sequence[float], limit: float) -> None:
        """Assign the tokens that start before `limit` to spans, and keep the others pending."""
        borders, span = self._borders, self._span
        index = 0
        decided = bisect_left(starts, limit)
        for start in starts[:decided]:
            while index < len(borders) and borders[index][0] <= start:
                span = borders[index][1]
                index += 1
            span.tokens += 1
            self.total += span.is_reasoning is True
        self._pending = list(starts[decided:])
        if not self._pending and borders:
            span = borders[-1][1]
            index = len(borders)
        self._span = span
        del borders[:index]
        self._update()

    def _update(self) -> None:
        self.settled = (
            not self._borders and not self._pending and self._span.is_reasoning is not None
        )

    def _starts(self, text: str, token_ids: Sequence[int]) -> list[float]:
        """The start of each token, in characters of `text`."""
        encoded = text.encode("utf-8", "replace")
        if self._tokenizer is not None:
            try:
                lengths = [len(self._tokenizer.token_bytes(token)) for token in token_ids]
            except ValueError:
                lengths = []
            if lengths and sum(lengths) == len(encoded):
                starts = accumulate(lengths[:-1], initial=0)
                if text.isascii():
                    return [float(start) for start in starts]
                return [float(len(encoded[:start].decode("utf-8", "ignore"))) for start in starts]
        share = len(text) / len(token_ids)
        return [index * share for index in range(len(token_ids))]
