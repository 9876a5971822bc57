"""How many output tokens began inside reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gateway.protocols.engine import Tokenizer


class Span:
    """A stretch of output of one kind. What it is may turn out later: then `kind` is None until `settle`."""

    __slots__ = ("is_reasoning", "tokens")

    def __init__(self, is_reasoning: bool | None) -> None:
        self.is_reasoning = is_reasoning
        self.tokens = 0


class ReasoningMeter:
    """Counts tokens into spans.

    Exact where an output carries one token; for several in one output, borders are found by the tokens' bytes, or in
    proportion where these do not add up to the text (half a character, a token that is not shown).
    """

    __slots__ = ("_borders", "_span", "_tokenizer", "total")

    def __init__(self, tokenizer: Tokenizer | None, *, reasoning: bool) -> None:
        self.total = 0
        self._tokenizer = tokenizer
        self._span = Span(reasoning)
        self._borders: list[tuple[int, Span]] = []

    @property
    def settled(self) -> bool:
        """Whether all tokens to come are of the kind of those that came last, until the next border."""
        return not self._borders and self._span.is_reasoning is not None

    def border(self, offset: int, is_reasoning: bool | None) -> Span:
        """From `offset` on, in characters of the output being fed, the output is of this kind; None: undecided."""
        span = Span(is_reasoning)
        self._borders.append((offset, span))
        return span

    def settle(self, span: Span, *, reasoning: bool) -> None:
        """An undecided span's kind is known now."""
        span.is_reasoning = reasoning
        if reasoning:
            self.total += span.tokens

    def count(self, text: str, token_ids: Sequence[int]) -> None:
        """The output that has been fed carried these tokens."""
        borders = self._borders
        if not borders:
            self._add(self._span, len(token_ids))
            return
        if len(token_ids) <= 1:
            self._add(self._span, len(token_ids))
        else:
            span = self._span
            index = 0
            for start in self._starts(text, token_ids):
                while index < len(borders) and borders[index][0] <= start:
                    span = borders[index][1]
                    index += 1
                self._add(span, 1)
        self._span = borders[-1][1]
        borders.clear()

    def _add(self, span: Span, tokens: int) -> None:
        span.tokens += tokens
        if span.is_reasoning:
            self.total += tokens

    def _starts(self, text: str, token_ids: Sequence[int]) -> list[float]:
        """Where each token begins, in characters of `text`."""
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
