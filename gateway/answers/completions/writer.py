"""Writing a Completions choice from the model's raw text, as chunks or as one object."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw

from gateway.answers.chunks import SSE_END
from gateway.base.deltas import Delta, RefusalDelta, TextDelta
from gateway.items.logprobs import LogprobAligner, token_by_id
from gateway.plugins.protocols import FinishReason, TokenLogprob
from gateway.wire import completions as wire
from gateway.wire.chat import CompletionUsage, PromptLogprob
from gateway.wire.common import encode
from gateway.wire.content import LOWEST_LOGPROB

Logprobs: TypeAlias = tuple[bytes, ...]
"""For each list of `CompletionLogprobs`, its elements as JSON. For a long prompt, they are made in a thread, so that
other requests are not blocked."""

_LISTS: Final = wire.CompletionLogprobs.__struct_fields__
_NOTHING: Final[Logprobs] = (b"",) * len(_LISTS)
_AT_ONCE = 1024
"""Number of tokens that are converted in one piece."""


class Echo:
    """The prompt that a choice's text begins with (`echo`)."""

    def __init__(self, text: str, first_token: str, first_shown: str, *, shows_ids: bool) -> None:
        """`first_token` is the text of the prompt's first token, which has no log probability; `first_shown` is shown
        for it in `tokens`. `shows_ids`: see `LogprobAligner`."""
        self.text = text
        self.logprobs: Logprobs = _NOTHING
        """The log probabilities of the prompt's tokens."""
        self._first_token = first_token
        self._first_shown = first_shown
        self._shows_ids = shows_ids

    def read(self, scores: Sequence[TokenLogprob | None]) -> None:
        """Convert the prompt's log probabilities, as the engine reported them."""
        offset, decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[Logprobs] = []
        for at in range(0, len(scores), _AT_ONCE):
            lists = wire.CompletionLogprobs()
            for token in scores[at : at + _AT_ONCE]:
                if token is None:
                    lists.text_offset.append(offset)
                    lists.tokens.append(self._first_shown)
                    lists.token_logprobs.append(None)
                    lists.top_logprobs.append(None)
                    offset += len(self._first_token)
                else:
                    shown = token_by_id(token) if self._shows_ids else token
                    _score(shown, offset, lists)
                    offset += len(decoder.decode(token.bytes))
            parts.append(_members(lists))
        self.logprobs = _joined(parts)


class CompletionWriter:
    """Writes a choice's text, as chunks or as one object. Implements `gateway.generation.writers.GenerationWriter`."""

    def __init__(
        self,
        index: int,
        *,
        head: bytes | None,
        aligner: LogprobAligner | None,
        echo: Echo | None,
        mute: bool,
        token_ids: list[int] | None,
        prompt_token_ids: Sequence[int],
        includes_usage: bool,
        usage_so_far: Callable[[], CompletionUsage] | None,
    ) -> None:
        """`head` is the common beginning of all chunks; None if the answer is not streamed. `aligner` is given if log
        probabilities are shown. `mute`: whether the model's output is not shown."""
        self._index = index
        self._begin = None if head is None else b'%b{"index":%d,"text":' % (head, index)
        self._echo = echo
        self._mute = mute
        self._token_ids = token_ids
        self._prompt_token_ids = prompt_token_ids
        self._told_prompt = False
        self._null_usage = b',"usage":null' if includes_usage else b""
        self._usage = usage_so_far
        self._aligner = aligner
        logprobs = aligner is not None
        self._is_plain = not (logprobs or token_ids is not None or usage_so_far is not None)
        self._plain_end = b',"logprobs":null,"finish_reason":null}]' + self._null_usage + SSE_END
        self._shows_logprobs = logprobs
        self._text: list[str] = []
        self._logprobs = wire.CompletionLogprobs()
        self._of_prompt = _NOTHING
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0
        self._begun = False
        self.finish_reason: Literal["stop", "length", "content_filter"] = "stop"
        """Why the choice ended."""
        self._stop_reason: str | int | None = None

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        """Write more text. Returns the bytes to send."""
        out = b"" if self._begun else self._begin_text()
        for delta in deltas:
            if isinstance(delta, RefusalDelta):
                continue  # the API has no field for it; the finish reason shows it
            if not isinstance(delta, TextDelta):
                raise TypeError("raw output is text alone")
            out += self._write(delta)
        return out

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        """Write the end of the text. `held` are its last deltas. Returns the bytes to send."""
        if reason == "length" or reason == "content_filter":
            self.finish_reason = reason
        return self.feed(held)

    def finish(self, stop_reason: str | int | None) -> bytes:
        """End the choice. Returns its last bytes."""
        self._stop_reason = stop_reason
        logprobs = None
        if self._aligner is not None and not self._mute and (rest := self._aligner.rest()):
            logprobs = wire.CompletionLogprobs()
            for token in rest:
                self._score(token, logprobs)
        if self._begin is None:
            if logprobs is not None:
                self._gather("", logprobs)
            return b""
        end = b',"logprobs":%b,"finish_reason":"%b"' % (
            encode(logprobs), self.finish_reason.encode(),
        )  # fmt: skip
        if stop_reason is not None:
            end += b',"stop_reason":%b' % encode(stop_reason)
        return b"".join(
            (self._begin, b'""', end, self._tokens(), b"}]", self._usage_now(), SSE_END)
        )

    def _begin_text(self) -> bytes:
        """Write the echoed prompt, if any. Returns the bytes to send."""
        self._begun = True
        echo = self._echo
        if echo is None:
            return b""
        if self._shows_logprobs:
            self._offset = len(echo.text)
        if self._begin is not None:
            return self._chunk(echo.text, _object(echo.logprobs) if self._shows_logprobs else None)
        self._of_prompt = echo.logprobs
        self._text.append(echo.text)
        return b""

    def _write(self, delta: TextDelta) -> bytes:
        if self._mute:
            return b""
        if self._is_plain and self._begin is not None:
            return self._begin + encode(delta.text) + self._plain_end
        if self._aligner is None:
            return self._put(delta.text, None)
        completion_logprobs = wire.CompletionLogprobs()
        for token in self._aligner.take(delta.start, delta.text):
            self._score(token, completion_logprobs)
        return self._put(delta.text, completion_logprobs)

    def choice(
        self, prompt_logprobs: list[dict[int, PromptLogprob] | None] | None
    ) -> wire.CompletionChoice:
        """Return the finished choice."""
        shows_tokens = self._token_ids is not None
        return wire.CompletionChoice(
            index=self._index,
            text="".join(self._text),
            logprobs=_object(_joined([self._of_prompt, _members(self._logprobs)]))
            if self._shows_logprobs
            else None,
            finish_reason=self.finish_reason,
            stop_reason=UNSET if self._stop_reason is None else self._stop_reason,
            token_ids=UNSET if self._token_ids is None else self._token_ids,
            prompt_token_ids=list(self._prompt_token_ids) if shows_tokens else UNSET,
            prompt_logprobs=UNSET if prompt_logprobs is None else prompt_logprobs,
        )

    def _put(self, text: str, logprobs: wire.CompletionLogprobs | None) -> bytes:
        if self._begin is None:
            self._gather(text, logprobs)
            return b""
        return self._chunk(text, logprobs)

    def _gather(self, text: str, logprobs: wire.CompletionLogprobs | None) -> None:
        self._text.append(text)
        if logprobs is not None:
            whole = self._logprobs
            whole.text_offset += logprobs.text_offset
            whole.token_logprobs += logprobs.token_logprobs
            whole.tokens += logprobs.tokens
            whole.top_logprobs += logprobs.top_logprobs

    def _chunk(self, text: str, logprobs: wire.CompletionLogprobs | None) -> bytes:
        assert self._begin is not None, "it is streamed"
        return b"".join(
            (
                self._begin, encode(text), b',"logprobs":', encode(logprobs),
                b',"finish_reason":null', self._tokens(), b"}]", self._usage_now(), SSE_END,
            )
        )  # fmt: skip

    def _score(self, token: TokenLogprob, completion_logprobs: wire.CompletionLogprobs) -> None:
        """Append the log probability of one token to the lists."""
        _score(token, self._offset, completion_logprobs)
        self._offset += len(self._decoder.decode(token.bytes))

    def _tokens(self) -> bytes:
        if self._token_ids is None:
            return b""
        fields = b',"token_ids":%b' % encode(self._token_ids)
        self._token_ids.clear()
        if not self._told_prompt:
            self._told_prompt = True
            fields += b',"prompt_token_ids":%b' % encode(self._prompt_token_ids)
        return fields

    def _usage_now(self) -> bytes:
        if self._usage is None:
            return self._null_usage
        return b',"usage":%b' % encode(self._usage())


def _score(token: TokenLogprob, offset: int, lists: wire.CompletionLogprobs) -> None:
    """Append the log probability of a token that begins at `offset` to `lists`."""
    lists.text_offset.append(offset)
    lists.tokens.append(token.token)
    lists.token_logprobs.append(max(token.logprob, LOWEST_LOGPROB))
    best = {top.token: max(top.logprob, LOWEST_LOGPROB) for top in token.top}
    best.setdefault(token.token, max(token.logprob, LOWEST_LOGPROB))
    lists.top_logprobs.append(best)


def _members(lists: wire.CompletionLogprobs) -> Logprobs:
    return tuple(encode(getattr(lists, name))[1:-1] for name in _LISTS)


def _joined(parts: Sequence[Logprobs]) -> Logprobs:
    return tuple(b",".join(filter(None, each)) for each in zip(*parts, strict=True)) or _NOTHING


def _object(logprobs: Logprobs) -> Any:
    """Return the lists as JSON, in the form of `CompletionLogprobs`."""
    shown = (
        b'"%b":[%b]' % (name.encode(), each) for name, each in zip(_LISTS, logprobs, strict=True)
    )
    return Raw(b"{%b}" % b",".join(shown))
