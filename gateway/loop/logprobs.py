"""Log probabilities of the final text alone, aligned with it."""

from __future__ import annotations

import codecs
from collections import deque

import msgspec

from gateway.protocols import EngineOutput, TokenLogprob


class LogprobAligner:
    """Gives each stretch of answer text the log probabilities of the tokens that begin in it.

    Engines report tokens by their bytes, parsers report text with its offset in the raw output, in characters. So the bytes
    are decoded as engines decode them, malformed ones to replacement characters. Tokens of reasoning, markers and call
    syntax are passed over. Memory: only tokens whose text is still held back.
    """

    def __init__(self) -> None:
        self._tokens: deque[tuple[int, int, TokenLogprob]] = deque()
        """Each with the character that it begins in, and the one after its last."""
        self.begin()

    def begin(self) -> None:
        """A new generation of the same answer: its parser counts characters from 0 again."""
        self._tokens.clear()
        self._at = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, output: EngineOutput) -> None:
        """Take note of an engine's output, before the parser is fed with it."""
        for token in output.logprobs or ():
            start = self._at
            self._at += len(self._decode(token.bytes))
            if token.bytes:
                # One that completes no character is a part of the next.
                self._tokens.append((start, max(self._at, start + 1), token))

    def skip(self, text: str) -> None:
        """Take note of text that the parser is fed with and that no token stands for (a prompt's prefill)."""
        self._at += len(text)

    def take(self, start: int, text: str) -> list[TokenLogprob]:
        """The tokens that begin in the slice `text` at character `start`; those before it are dropped.

        A token that began just before the text (a marker's last bytes and a first letter in one token) belongs to it.
        """
        if start < 0:
            return []
        tokens, end = self._tokens, start + len(text)
        taken: list[TokenLogprob] = []
        while tokens and tokens[0][0] < end:
            _, last, token = tokens.popleft()
            if last > start:
                taken.append(token)
        return taken

    def beginning(self, at: int) -> int:
        """Where the token begins, of those not taken, that goes over the place before character `at`; `at` if none does."""
        for start, last, _ in self._tokens:
            if start < at < last:
                return start
        return at

    def cut(self, at: int) -> None:
        """The output ends at character `at` after all: what is past it has no tokens, and a token no bytes of it."""
        kept = [each for each in self._tokens if each[0] < at]
        if kept and kept[-1][1] > at:
            start, _, token = kept[-1]
            shown = token.bytes.decode("utf-8", "replace")[: at - start]
            kept[-1] = (start, at, msgspec.structs.replace(token, bytes=shown.encode()))
        self._tokens = deque(kept)
