"""Log probabilities of an upstream, next to the text that they are of."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from gateway.protocols import TokenLogprob, TopLogprob

NO_ID = -1
"""The API tells tokens as text; their ids stay with the engine."""


class UpstreamTop(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class UpstreamLogprob(Struct):
    """A token as both APIs tell it."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[UpstreamTop] | None = None


class Scores:
    """Keeps the tokens that make the text, in order; tokens of anything else (markers, reasoning) are dropped.

    The gateway finds a text's tokens by their bytes, so those that are let out add up to the text. Where they do not, as in
    servers that change the text afterwards, the rest has none.
    """

    def __init__(self, wanted: int) -> None:
        """`wanted`: alternatives of each token."""
        self._wanted = wanted
        self._tokens: deque[tuple[bytes, UpstreamLogprob]] = deque()
        self._text = b""
        """What no token was found for yet."""
        self._owed = b""
        """The end of the last token, whose beginning was in the text."""

    def add(self, tokens: Sequence[UpstreamLogprob]) -> None:
        """The tokens of text that comes now, or soon."""
        for token in tokens:
            data = bytes(token.bytes) if token.bytes is not None else token.token.encode()
            self._tokens.append((data, token))

    def take(self, text: str) -> list[TokenLogprob]:
        """More text; the tokens that begin in it."""
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
