"""Counting the output tokens that start inside reasoning, for parsers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from gateway.protocols import Tokenizer


class OutputSpan:
    """A span of output of one kind. `kind` is None until `settle` if it is undecided."""

    __slots__ = ("is_reasoning", "tokens")

    def __init__(self, is_reasoning: bool | None) -> None:
        self.is_reasoning = is_reasoning
        self.tokens = 0


class ReasoningMeter:
    """Assigns tokens to spans. Offsets are in characters of the whole output.

    A parser reports each change between reasoning and text with `begin_span`, and each output with `count` when it has looked
    for markers in it; `total` is then independent of how tokens are grouped into outputs. Exact if each output has one token.
    For several tokens in one output, their starts are found by the tokens' bytes, or proportionally if these do not match the
    text (half a character, a hidden token).
    """

    __slots__ = ("_borders", "_pending", "_span", "_tokenizer", "settled", "total")

    def __init__(self, tokenizer: Tokenizer | None, *, reasoning: bool) -> None:
        self.total = 0
        self.settled = True
        """Whether all tokens up to the next span have the kind of the latest ones."""
        self._tokenizer = tokenizer
        self._span = OutputSpan(reasoning)
        self._borders: list[tuple[int, OutputSpan]] = []
        self._pending: list[float] = []
        """Starts of tokens whose text is undecided."""

    def begin_span(self, offset: int, is_reasoning: bool | None) -> OutputSpan:
        """Set the kind of the output from `offset` on; None: undecided, until `settle`."""
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
        """Count tokens of the latest kind. Only while `settled`, and if all text is decided."""
        span = self._span
        span.tokens += tokens
        if span.is_reasoning:
            self.total += tokens

    def count(self, text: str, token_ids: Sequence[int], end: int, held: int) -> None:
        """Count the tokens of an output whose `text` ends at `end`. The last `held` characters so far are undecided."""
        start = end - len(text)
        starts = (
            [float(start)]
            if len(token_ids) == 1
            else [start + each for each in self._starts(text, token_ids)]
        )
        self._assign([*self._pending, *starts], end - held)

    def finish(self) -> None:
        """Count what is pending: the output has ended."""
        self._assign(self._pending, math.inf)

    def _assign(self, starts: Sequence[float], limit: float) -> None:
        """Assign the tokens that start before `limit`, and keep the others."""
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
        """Start of each token, in characters of `text`."""
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
