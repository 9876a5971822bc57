"""Output tokens with the bytes that each adds to the text, whatever an engine's decoder made of them."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.protocols import TokenLogprob, TopLogprob

Piece = Callable[[int], tuple[str, bytes]]
"""A token as text and as bytes."""

# JSON has no infinity; vLLM's own server writes the same number.
_LEAST = -9999.0


class Scored(NamedTuple):
    """A token with its log probability, before it is known what it adds to the text."""

    token_id: int
    logprob: float
    top: tuple[TopLogprob, ...]
    raw: bytes


def scored(
    token_id: int, logprob: float, alternatives: Iterable[tuple[int, float]], piece: Piece
) -> Scored:
    """A token with its most likely alternatives, best first; infinitely unlikely ones get a number that JSON has."""
    top = tuple(_top(other, value, piece) for other, value in alternatives)
    return Scored(token_id, max(logprob, _LEAST), top, piece(token_id)[1])


def as_prompt(token: Scored, piece: Piece) -> TokenLogprob:
    """A prompt's token, with its own bytes."""
    return _finish(token, token.raw, piece)


def _top(token_id: int, logprob: float, piece: Piece) -> TopLogprob:
    text, data = piece(token_id)
    return TopLogprob(token_id=token_id, token=text, logprob=max(logprob, _LEAST), bytes=data)


def _finish(token: Scored, data: bytes, piece: Piece) -> TokenLogprob:
    return TokenLogprob(
        token_id=token.token_id,
        token=piece(token.token_id)[0],
        logprob=token.logprob,
        bytes=data,
        top=token.top,
    )


class TextAligner:
    """Gives each output token the bytes that it adds to one generation's text.

    A token is given out once its text is: held stop strings and half characters hold it too. What was generated and is
    not in the text (a stop string's end, a broken character at the very end) has no bytes. Over a generation the bytes
    add up to the text, whatever the engine made of malformed UTF-8.
    """

    def __init__(self, piece: Piece, hidden: frozenset[int]) -> None:
        """`hidden` are the ids that never become text (special tokens, where they are skipped)."""
        self._piece = piece
        self._hidden = hidden
        self._held: list[Scored] = []
        self._text = b""

    def push(
        self, tokens: Iterable[Scored], text: str, *, ended_by_token: bool, last: bool
    ) -> list[TokenLogprob]:
        """The tokens that are settled now. `ended_by_token`: the last token ended the output, without being text."""
        self._held += [
            token._replace(raw=b"") if token.token_id in self._hidden else token for token in tokens
        ]
        if ended_by_token and self._held:
            self._held[-1] = self._held[-1]._replace(raw=b"")
        self._text += text.encode()
        settled = self._whole()
        if self._held or self._text:
            settled += self._rest(last=last)
            if self._text and settled and not self._held:
                # Text that no token stands for, as at the start of some sentencepiece outputs.
                settled[-1] = _with_more(settled[-1], self._text)
                self._text = b""
        return settled

    def _whole(self) -> list[TokenLogprob]:
        """The tokens whose own bytes are what the text has next."""
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
        """What follows a token that the text does not have as it is."""
        held, text = self._held, self._text
        raw = [token.raw for token in held]
        if not b"".join(raw).startswith(text):
            raw = _as_decoded(raw)
            if not b"".join(raw).startswith(text):
                # The engine's decoder lost the thread: this stretch is the first token's.
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
    """What each token adds to the decoded text: whole characters byte by byte, broken ones as a replacement character
    of the token that shows them to be broken."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    added: list[bytes] = []
    # How many bytes of an unfinished character each token holds, by its place.
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
