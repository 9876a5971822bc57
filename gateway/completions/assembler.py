"""Completions: the raw text of the model, without a renderer or a format, as choices."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from msgspec import UNSET

from gateway.chat.chunks import SSE_END
from gateway.constraints import Constraint
from gateway.deltas import Delta, TextDelta
from gateway.protocols import (
    EngineOutput,
    FinishReason,
    OutputParser,
    ParserContext,
    Piece,
    RawPiece,
    Tail,
    TextPiece,
    TokenLogprob,
    Turn,
)
from gateway.wire import completions as wire
from gateway.wire.chat import CompletionUsage, PromptLogprob
from gateway.wire.chat import FinishReason as ChatFinish
from gateway.wire.common import encode
from gateway.wire.content import LOWEST_LOGPROB


class RawOutput:
    """The format of no format: all output is text. Satisfies `gateway.protocols.OutputFormat`."""

    name = "raw"
    keeps_special_tokens = False

    def parser(self, context: ParserContext) -> OutputParser:
        return RawParser()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece | RawPiece))

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        return None


class RawParser:
    """Hands the text on."""

    def __init__(self) -> None:
        self.reasoning_tokens = 0
        self.recoveries = 0
        self._at = 0

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = output.text
        if not text:
            return ()
        at = self._at
        self._at += len(text)
        return (TextDelta(text, at),)

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return ()


class Echo:
    """The prompt as the beginning of a choice's text."""

    def __init__(
        self,
        text: str,
        first_token: str,
        scores: Callable[[], Sequence[TokenLogprob | None]] | None,
    ) -> None:
        """`scores`, where log probabilities are shown, gives the prompt's, once the engine has given them."""
        self.text = text
        self.first_token = first_token
        self.scores = scores


class CompletionWriter:
    """Writes a choice's text, as chunks or into one. See `gateway.chat.assembler.ChoiceWriter`."""

    def __init__(
        self,
        index: int,
        *,
        head: bytes | None,
        logprobs: bool,
        echo: Echo | None,
        mute: bool,
        token_ids: list[int] | None,
        prompt_token_ids: Sequence[int],
        includes_usage: bool,
        usage_so_far: Callable[[], CompletionUsage] | None,
    ) -> None:
        """`head`: what chunks begin with; None: there are none. `mute`: what the model writes is not shown."""
        self._index = index
        self._begin = None if head is None else b'%b{"index":%d,"text":' % (head, index)
        self._echo = echo
        self._mute = mute
        self._token_ids = token_ids
        self._prompt_token_ids = prompt_token_ids
        self._told_prompt = False
        self._null_usage = b',"usage":null' if includes_usage else b""
        self._usage = usage_so_far
        self._is_plain = not (logprobs or token_ids is not None or usage_so_far is not None)
        self._plain_end = b',"logprobs":null,"finish_reason":null}]' + self._null_usage + SSE_END
        self._shows_logprobs = logprobs
        self._text: list[str] = []
        self._logprobs = wire.CompletionLogprobs()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0
        self._finish: ChatFinish = "stop"
        self._stop_reason: str | int | None = None

    def role(self) -> bytes:
        """There are no roles here: a choice begins with its prompt, if that is echoed."""
        echo = self._echo
        if echo is None:
            return b""
        told = wire.CompletionLogprobs() if self._shows_logprobs else None
        if told is not None and echo.scores is not None:
            for token in echo.scores():
                self._score(token, echo.first_token, told)
            self._offset = len(echo.text)
        return self._put(echo.text, told)

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        if self._mute:
            return b""
        if self._is_plain and self._begin is not None:
            return self._begin + encode(text) + self._plain_end
        told = wire.CompletionLogprobs() if self._shows_logprobs else None
        if told is not None:
            for token in logprobs:
                self._score(token, "", told)
        return self._put(text, told)

    def reasoning(self, text: str) -> bytes:
        raise RuntimeError("raw output has no reasoning")

    def refusal(self, text: str) -> bytes:
        raise RuntimeError("raw output has no refusals")

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        raise RuntimeError("raw output has no calls")

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes:
        raise RuntimeError("raw output has no calls")

    def finish(self, reason: ChatFinish, stop_reason: str | int | None) -> bytes:
        self._finish, self._stop_reason = reason, stop_reason
        if self._begin is None:
            return b""
        end = b',"logprobs":null,"finish_reason":"%b"' % reason.encode()
        if stop_reason is not None:
            end += b',"stop_reason":%b' % encode(stop_reason)
        return b"".join(
            (self._begin, b'""', end, self._tokens(), b"}]", self._usage_now(), SSE_END)
        )

    def choice(
        self, prompt_logprobs: list[dict[int, PromptLogprob] | None] | None
    ) -> wire.CompletionChoice:
        """The finished choice."""
        shows_tokens = self._token_ids is not None
        return wire.CompletionChoice(
            index=self._index,
            text="".join(self._text),
            logprobs=self._logprobs if self._shows_logprobs else None,
            finish_reason=self._finish,  # type: ignore[arg-type]  # without calls there is none but these
            stop_reason=UNSET if self._stop_reason is None else self._stop_reason,
            token_ids=UNSET if self._token_ids is None else self._token_ids,
            prompt_token_ids=list(self._prompt_token_ids) if shows_tokens else UNSET,
            prompt_logprobs=UNSET if prompt_logprobs is None else prompt_logprobs,
        )

    def _put(self, text: str, logprobs: wire.CompletionLogprobs | None) -> bytes:
        if self._begin is None:
            self._text.append(text)
            if logprobs is not None:
                whole = self._logprobs
                whole.text_offset += logprobs.text_offset
                whole.token_logprobs += logprobs.token_logprobs
                whole.tokens += logprobs.tokens
                whole.top_logprobs += logprobs.top_logprobs
            return b""
        return b"".join(
            (
                self._begin, encode(text), b',"logprobs":', encode(logprobs),
                b',"finish_reason":null', self._tokens(), b"}]", self._usage_now(), SSE_END,
            )
        )  # fmt: skip

    def _score(
        self, token: TokenLogprob | None, unscored: str, told: wire.CompletionLogprobs
    ) -> None:
        """Note one token; nothing comes before a prompt's first one, so that one has no probability."""
        told.text_offset.append(self._offset)
        if token is None:
            told.tokens.append(unscored)
            told.token_logprobs.append(None)
            told.top_logprobs.append(None)
            self._offset += len(unscored)
            return
        told.tokens.append(token.token)
        told.token_logprobs.append(max(token.logprob, LOWEST_LOGPROB))
        best = {top.token: max(top.logprob, LOWEST_LOGPROB) for top in token.top}
        best.setdefault(token.token, max(token.logprob, LOWEST_LOGPROB))
        told.top_logprobs.append(best)
        self._offset += len(self._decoder.decode(token.bytes))

    def _tokens(self) -> bytes:
        if self._token_ids is None:
            return b""
        told = b',"token_ids":%b' % encode(self._token_ids)
        self._token_ids.clear()
        if not self._told_prompt:
            self._told_prompt = True
            told += b',"prompt_token_ids":%b' % encode(self._prompt_token_ids)
        return told

    def _usage_now(self) -> bytes:
        if self._usage is None:
            return self._null_usage
        return b',"usage":%b' % encode(self._usage())
