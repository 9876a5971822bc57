"""Aligning output tokens with the bytes that each of them adds to the text, independently of the engine's decoder."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.plugins.protocols import TokenLogprob, TopLogprob
from gateway.wire.content import LOWEST_LOGPROB

Piece = Callable[[int], tuple[str, bytes]]
"""Maps a token id to its text and its bytes."""


class ScoredToken(NamedTuple):
    """A token with its log probability. The bytes that it adds to the text are not known yet."""

    token_id: int
    logprob: float
    top: tuple[TopLogprob, ...]
    raw: bytes
    rank: int | None = None
    """See `TokenLogprob.rank`."""


def scored(
    token_id: int, logprob: float, alternatives: Iterable[tuple[int, float]], piece: Piece
) -> ScoredToken:
    """A token with its most likely alternatives, best first. Infinite log probabilities are replaced by a number that
    JSON can represent."""
    top = tuple(_top(other, value, piece) for other, value in alternatives)
    return ScoredToken(token_id, max(logprob, LOWEST_LOGPROB), top, piece(token_id)[1])


def as_prompt(token: ScoredToken, piece: Piece) -> TokenLogprob:
    """A token of the prompt. Its bytes are those of the token in the vocabulary."""
    return _finish(token, token.raw, piece)


def _top(token_id: int, logprob: float, piece: Piece) -> TopLogprob:
    text, data = piece(token_id)
    return TopLogprob(
        token_id=token_id, token=text, logprob=max(logprob, LOWEST_LOGPROB), bytes=data
    )


def _finish(token: ScoredToken, data: bytes, piece: Piece) -> TokenLogprob:
    return TokenLogprob(
        token_id=token.token_id,
        token=piece(token.token_id)[0],
        logprob=token.logprob,
        bytes=data,
        top=token.top,
        rank=token.rank,
    )


class TextAligner:
    """Assigns to each output token the bytes that it adds to one generation's text.

    A token is returned once its text is known; held-back stop strings and incomplete characters delay it. Tokens that
    do not contribute to the text (the end of a stop string, an incomplete character at the end) have no bytes. The
    bytes of all tokens together are the text, however the engine decodes malformed UTF-8.
    """

    def __init__(self, piece: Piece, hidden: frozenset[int]) -> None:
        """`hidden` are the ids that never become text: special tokens, if they are skipped."""
        self._piece = piece
        self._hidden = hidden
        self._held: list[ScoredToken] = []
        self._text = b""

    def push(
        self, tokens: Iterable[ScoredToken], text: str, *, ended_by_token: bool, last: bool
    ) -> list[TokenLogprob]:
        """Add tokens and text. Returns the tokens whose bytes are known now. `ended_by_token`: whether the last token
        ended the output and is not part of the text."""
        self._held += [
            token._replace(raw=b"") if token.token_id in self._hidden else token for token in tokens
        ]
        if ended_by_token and self._held:
            self._held[-1] = self._held[-1]._replace(raw=b"")
        self._text += text.encode()
        settled = self._exact_tokens()
        if self._held or self._text:
            settled += self._rest(last=last)
            if self._text and settled and not self._held:
                # Text without a token, for example at the start of some sentencepiece outputs.
                settled[-1] = _with_more(settled[-1], self._text)
                self._text = b""
        return settled

    def _exact_tokens(self) -> list[TokenLogprob]:
        """The next tokens whose bytes in the vocabulary match the next bytes of the text."""
        position = 0
        settled: list[TokenLogprob] = []
        for token in self._held:
            end = position + len(token.raw)
            if self._text[position:end] != token.raw:
                break
            settled.append(_finish(token, token.raw, self._piece))
            position = end
        del self._held[: len(settled)]
        self._text = self._text[position:]
        return settled

    def _rest(self, *, last: bool) -> list[TokenLogprob]:
        """The tokens from the first one on whose bytes in the vocabulary do not match the text."""
        held, text = self._held, self._text
        if held and not last and len(held[0].raw) > len(text) and held[0].raw.startswith(text):
            return []  # the rest of the text is held back
        raw = [token.raw for token in held]
        if not b"".join(raw).startswith(text):
            raw = _as_decoded(raw)
            if not b"".join(raw).startswith(text):
                # The decoder's text does not match the tokens: assign this section to the first
                # token.
                raw = [text, *(b"" for _ in held[1:])] if held else []
                last = True
        settled: list[TokenLogprob] = []
        position = 0
        for token, data in zip(held, raw, strict=True):
            end = position + len(data)
            if end > len(text) and not last:
                break
            settled.append(_finish(token, text[position:end], self._piece))
            position = min(end, len(text))
        del held[: len(settled)]
        self._text = text[position:]
        return settled


def _with_more(token: TokenLogprob, data: bytes) -> TokenLogprob:
    return TokenLogprob(
        token_id=token.token_id,
        token=token.token,
        logprob=token.logprob,
        bytes=token.bytes + data,
        top=token.top,
    )


def _as_decoded(raw: Sequence[bytes]) -> list[bytes]:
    """The bytes that each token adds to the decoded text. Complete characters are added byte by byte; a malformed one
    is a replacement character of the token that makes it malformed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    added: list[bytes] = []
    # The bytes of an incomplete character, each part with the index of its token.
    unfinished: list[tuple[int, bytes]] = []
    for place, data in enumerate(raw):
        carried = b"".join(part for _, part in unfinished)
        text = decoder.decode(data).encode()
        carry = decoder.getstate()[0]
        if carried and text.startswith(carried):
            for holder, part in unfinished:
                added[holder] += part
            text = text[len(carried) :]
            unfinished = []
        elif text:
            unfinished = []
        added.append(text)
        own = len(carry) - sum(len(part) for _, part in unfinished)
        if own > 0:
            unfinished.append((place, carry[len(carry) - own :]))
    return added
