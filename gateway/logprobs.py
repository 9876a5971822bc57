"""Log probabilities of the final text alone, aligned with it."""

from __future__ import annotations

from collections import deque

from gateway.protocols import EngineOutput, TokenLogprob


class LogprobAligner:
    """Gives each stretch of answer text the log probabilities of the tokens that begin in it.

    Engines report tokens, parsers report text with its offset in the raw output; both are positions in the same UTF-8.
    Tokens of reasoning, markers and call syntax are passed over. Memory: only tokens whose text is still held back.
    """

    def __init__(self) -> None:
        self._tokens: deque[tuple[int, TokenLogprob]] = deque()
        self._token_end = 0
        self._pending = ""
        self._chars = 0
        self._bytes = 0

    def push(self, output: EngineOutput) -> None:
        """Take note of an engine's output, before the parser is fed with it."""
        self._pending += output.text
        for token in output.logprobs or ():
            self._tokens.append((self._token_end, token))
            self._token_end += len(token.bytes)

    def skip(self, text: str) -> None:
        """Take note of text that the parser is fed with and that no token stands for (a prompt's prefill)."""
        self._pending += text
        self._token_end += len(text.encode())

    def take(self, start: int, text: str) -> list[TokenLogprob]:
        """The tokens that begin in the slice `text` at character `start`; those before it are dropped."""
        if start < 0:
            return []
        begin = self._advance(start - self._chars)
        end = self._advance(len(text))
        taken: list[TokenLogprob] = []
        while self._tokens and self._tokens[0][0] < end:
            position, token = self._tokens.popleft()
            # A token that began just before the text (a marker's last bytes and a first letter in one token)
            # belongs to it all the same.
            if position + len(token.bytes) > begin and token.bytes:
                taken.append(token)
        return taken

    def _advance(self, chars: int) -> int:
        """Move `chars` characters on in the raw text, and return the offset in bytes there."""
        passed = self._pending[:chars]
        self._pending = self._pending[chars:]
        self._chars += len(passed)
        self._bytes += len(passed.encode("utf-8", "surrogatepass"))
        return self._bytes
