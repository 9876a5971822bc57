"""Aligns an upstream's log probabilities with the text that they belong to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from gateway.sdk import TokenLogprob, TopLogprob

NO_ID = -1
"""Placeholder id: the API reports tokens as text, without ids."""


class UpstreamTop(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class UpstreamLogprob(Struct):
    """A token with its log probability, in the shape that both APIs use."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[UpstreamTop] | None = None


class ScoreCollector:
    """Collects the tokens of the text, in order. Tokens of anything else (markers, reasoning) are dropped.

    The gateway matches tokens to text by their bytes, so the returned tokens add up to the text. Where a server changes
    the text afterwards and they do not, the rest of the text has no log probabilities.
    """

    def __init__(self, wanted: int) -> None:
        """`wanted` is the number of alternatives of each token."""
        self._wanted = wanted
        self._tokens: deque[tuple[bytes, UpstreamLogprob]] = deque()
        self._text = b""
        """Text without a matching token so far."""
        self._owed = b""
        """The rest of the last token, whose first bytes were in the text."""

    def add(self, tokens: Sequence[UpstreamLogprob]) -> None:
        """Add tokens whose text arrives now or later."""
        for token in tokens:
            data = bytes(token.bytes) if token.bytes is not None else token.token.encode()
            self._tokens.append((data, token))

    def take(self, text: str) -> list[TokenLogprob]:
        """Add text and return the tokens that begin in it."""
        self._text += text.encode("utf-8", "surrogatepass")
        found: list[TokenLogprob] = []
        while self._text:
            owed = self._owed[: len(self._text)]
            if self._text.startswith(owed):
                self._text, self._owed = self._text[len(owed) :], self._owed[len(owed) :]
            else:
                self._owed = b""
            if not self._text or not self._tokens:
                break
            data, token = self._tokens.popleft()
            if data and self._text.startswith(data[: len(self._text)]):
                self._owed = data
                found.append(self._logprob(data, token))
        return found

    def _logprob(self, data: bytes, token: UpstreamLogprob) -> TokenLogprob:
        return TokenLogprob(
            NO_ID,
            token.token,
            token.logprob,
            data,
            tuple(
                TopLogprob(
                    NO_ID,
                    top.token,
                    top.logprob,
                    bytes(top.bytes) if top.bytes is not None else top.token.encode(),
                )
                for top in (token.top_logprobs or ())[: self._wanted]
            ),
        )
