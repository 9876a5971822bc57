"""Log probabilities of the answer's text, without the tokens of reasoning and syntax."""

from __future__ import annotations

import codecs
from collections import deque

import msgspec

from gateway.plugins.protocols import EngineOutput, TokenLogprob
from gateway.wire import content


class LogprobAligner:
    """Assigns to each piece of answer text the log probabilities of the tokens that begin in it.

    Engines report tokens as bytes; parsers report text with its offset in the raw output, in characters. The bytes are
    therefore decoded as engines decode them, with replacement characters for malformed bytes. Tokens of reasoning,
    markers and call syntax are skipped. Only tokens whose text was not taken yet are kept in memory.
    """

    def __init__(self, *, shows_ids: bool = False, every: bool = False) -> None:
        """`shows_ids`: whether tokens are shown by their ids, as with vLLM's `return_tokens_as_token_ids`. `every`:
        whether tokens that are not in the text are included too: special tokens, and the tokens that end the output."""
        self._shows_ids = shows_ids
        self._every = every
        self._tokens: deque[tuple[int, int, TokenLogprob]] = deque()
        """The remaining tokens, each with the offset of its first character and the offset after its last one."""
        self.begin()

    def begin(self) -> None:
        """Start a new generation of the same answer. The parser's offsets start at 0 again."""
        self._tokens.clear()
        self._at = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, output: EngineOutput) -> None:
        """Record an engine's output. Called before the output is fed to the parser."""
        for token in output.logprobs or ():
            start = self._at
            self._at += len(self._decode(token.bytes))
            if token.bytes:
                # A token that completes no character is part of the next character.
                self._tokens.append((start, max(self._at, start + 1), token))
            elif self._every:
                self._tokens.append((start, start, token))

    def skip(self, text: str) -> None:
        """Record text that is fed to the parser but has no tokens (a prompt's prefill)."""
        self._at += len(text)

    def take(self, start: int, text: str) -> list[TokenLogprob]:
        """Remove and return the tokens that begin in the slice `text` at character `start`. Earlier tokens are dropped.

        A token that begins before the slice and ends in it is included, for example the end of a marker and a first
        letter.
        """
        if start < 0:
            return []
        tokens, end = self._tokens, start + len(text)
        taken: list[TokenLogprob] = []
        while tokens and tokens[0][0] < end:
            _, last, token = tokens.popleft()
            if last > start or self._every:
                taken.append(token_by_id(token) if self._shows_ids else token)
        return taken

    def rest(self) -> list[TokenLogprob]:
        """Remove and return the tokens at the end of the output that are not in the text. Used with `every`."""
        taken = [token_by_id(each) if self._shows_ids else each for _, _, each in self._tokens]
        self._tokens.clear()
        return taken

    def beginning(self, at: int) -> int:
        """Return the start of the remaining token that spans the position `at`; or `at` if there is none."""
        for start, last, _ in self._tokens:
            if start >= at:
                break
            if at < last:
                return start
        return at

    def cut(self, at: int) -> None:
        """Truncate the output at character `at`. Tokens after it are removed, and a token that spans it is
        shortened."""
        kept = [each for each in self._tokens if each[0] < at]
        if kept and kept[-1][1] > at:
            start, _, token = kept[-1]
            shown = token.bytes.decode("utf-8", "replace")[: at - start]
            kept[-1] = (start, at, msgspec.structs.replace(token, bytes=shown.encode()))
        self._tokens = deque(kept)


def token_by_id(token: TokenLogprob) -> TokenLogprob:
    """Return `token` and its alternatives with their ids as text (`token_id:5`). Their bytes do not change."""
    return msgspec.structs.replace(
        token,
        token=f"token_id:{token.token_id}",
        top=tuple(
            msgspec.structs.replace(top, token=f"token_id:{top.token_id}") for top in token.top
        ),
    )


def logprob(token: TokenLogprob) -> content.Logprob:
    """Convert an engine's token to the API's form."""
    return content.Logprob(
        token=token.token,
        bytes=list(token.bytes),
        logprob=max(token.logprob, content.LOWEST_LOGPROB),
        top_logprobs=[
            content.TopLogprob(
                token=top.token,
                bytes=list(top.bytes),
                logprob=max(top.logprob, content.LOWEST_LOGPROB),
            )
            for top in token.top
        ],
    )
