"""Converts llama.cpp's chunks to engine outputs: text, tokens, log probabilities and the end of one generation.

Pure and synchronous. Text is decoded from the tokens' bytes, and stop strings and stop tokens are matched here, so that
text, tokens and log probabilities agree and all rules of `Sampling` hold.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from gateway.sdk import EngineOutput, FinishReason, Sampling, TokenLogprob, TopLogprob
from gateway.sdk.engines import LOWEST_LOGPROB, StopStrings
from gateway_llamacpp.chunks import Details, Probability
from gateway_llamacpp.recovery import recover
from gateway_llamacpp.vocabulary import Vocabulary


class _Held(Struct):
    """Tokens whose text is held back. `start` and `end` are byte offsets in the whole text."""

    ids: Sequence[int]
    start: int
    end: int
    logprob: TokenLogprob | None


class GenerationState:
    """State of one generation. Call `feed` until an output has a finish reason."""

    def __init__(self, vocabulary: Vocabulary, sampling: Sampling, *, limit: int) -> None:
        self._vocabulary = vocabulary
        self._sampling = sampling
        self._limit = limit
        self._hidden = vocabulary.special if sampling.skip_special_tokens else frozenset()
        self._stop_tokens = frozenset(sampling.stop_token_ids)
        self._min_tokens = sampling.min_tokens or 0
        self._stops = StopStrings(sampling.stop)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = 0
        """Number of text bytes made by the tokens so far."""
        self._waiting = 0
        """Number of text bytes that may belong to a stop string."""
        self._held: deque[_Held] = deque()
        self._undecided: _Held | None = None
        """A special token that counts as text only if another token follows."""
        self.tokens: list[int] = []
        """All tokens so far."""
        self.unknown = 0
        """Number of generated tokens that could not be identified (see `recovery`)."""

    @property
    def count(self) -> int:
        """Number of tokens generated so far, in all parts of the generation."""
        return len(self.tokens) + self.unknown

    def feed(self, details: Details, *, before: int = 0) -> EngineOutput | None:
        """The output that this chunk completes, or None. `before`: number of tokens of earlier parts of the
        generation."""
        if details.stop:
            return self._ended(details.stop_type, before + details.tokens_predicted)
        text = self._flush_undecided()
        token = details.tokens[0]
        lost = before + details.tokens_predicted - self.count - 1
        missing: tuple[int, ...] = ()
        prefix = b""
        if lost > 0:
            prefix = self._before_token(details.content, token)
            after = self._vocabulary.token_bytes(token)
            missing = recover(self._vocabulary, prefix, after, lost) or ()
            if missing:
                prefix = b"".join(map(self._vocabulary.token_bytes, missing))
            self.unknown += lost - len(missing)
        if self.count + len(missing) >= self._limit:
            # The limit was reached by a token that was reported late; later tokens are not part of the output.
            return self._drop_missing(text, missing)
        self.tokens += (*missing, token)
        if token in self._stop_tokens and self.count > self._min_tokens:
            return self._stopped_by(token, text, (*missing, token), prefix, details)
        own = b"" if token in self._hidden else self._vocabulary.token_bytes(token)
        made = _Held((*missing, token), self._bytes, self._bytes + len(prefix) + len(own), None)
        made.logprob = self._logprob(details, prefix + own)
        if own and token in self._vocabulary.special:
            if prefix:
                text += self._utf8.decode(prefix)
            self._undecided = made
            self._bytes += len(prefix)
        else:
            text += self._add(made, prefix + own)
        if self.count >= self._limit:
            return self._finish(text + self._flush_undecided(), "length")
        return self._emit(text)

    def _before_token(self, content: str, token: int) -> bytes:
        """The part of `content` before the text of its own token, which is the last."""
        data, own = content.encode(), self._vocabulary.token_bytes(token)
        if data.endswith(own):
            return data[: len(data) - len(own)]
        return content.removesuffix(self._vocabulary.text_of[token]).encode()

    def _add(self, made: _Held, data: bytes) -> str:
        self._bytes = made.end
        self._held.append(made)
        return self._utf8.decode(data)

    def _flush_undecided(self) -> str:
        """The text of an undecided token that turned out not to be the end."""
        made, self._undecided = self._undecided, None
        if made is None:
            return ""
        return self._add(made, self._vocabulary.token_bytes(made.ids[-1]))

    def _stopped_by(
        self, token: int, text: str, ids: tuple[int, ...], prefix: bytes, details: Details
    ) -> EngineOutput:
        shown = self._sampling.include_stop_str_in_output and token not in self._hidden
        data = prefix + (self._vocabulary.token_bytes(token) if shown else b"")
        made = _Held(ids, self._bytes, self._bytes + len(data), self._logprob(details, data))
        return self._finish(text + self._add(made, data), "stop", token)

    def _ended(self, stop_type: str, predicted: int) -> EngineOutput:
        self.unknown += max(0, min(predicted, self._limit) - self.count)
        if stop_type != "eos":
            return self._finish(self._flush_undecided(), "length")
        token = self.tokens[-1] if self.tokens else None
        if self._undecided is not None and not self._sampling.include_stop_str_in_output:
            made, self._undecided = self._undecided, None
            made.end = self._bytes
            if made.logprob is not None:
                made.logprob = _with_bytes(
                    made.logprob, made.logprob.bytes[: made.end - made.start]
                )
            self._held.append(made)
        return self._finish(self._flush_undecided(), "stop", token)

    def _drop_missing(self, text: str, missing: tuple[int, ...]) -> EngineOutput:
        kept = missing[: self._limit - self.count]
        self.tokens += kept
        data = b"".join(map(self._vocabulary.token_bytes, kept))
        if kept:
            text += self._add(_Held(kept, self._bytes, self._bytes + len(data), None), data)
        return self._finish(text, "length")

    def _emit(self, text: str) -> EngineOutput | None:
        """Emit the text that cannot be part of a stop string, with its tokens."""
        self._waiting += len(text.encode())
        text, stop, after = self._stops.feed(text, searching=self.count > self._min_tokens)
        if stop is not None:
            return self._end_at(text, stop, after)
        self._waiting -= len(text.encode())
        return self._release(text, self._bytes - self._waiting - len(self._utf8.getstate()[0]))

    def _finish(self, text: str, reason: FinishReason, cause: int | None = None) -> EngineOutput:
        text, stop, after = self._stops.feed(text, searching=self.count > self._min_tokens)
        if stop is not None:
            return self._end_at(text, stop, after)
        # An incomplete character at the end is not text.
        self._cut_logprobs(self._bytes - len(self._utf8.getstate()[0]))
        output = self._release(text + self._stops.rest(), self._bytes) or EngineOutput()
        output.finish_reason = reason
        output.stop_reason = cause
        return output

    def _end_at(self, text: str, stop: str, after: str) -> EngineOutput:
        """The last output: text and log probabilities end before, or with, `stop`."""
        beyond = len(after.encode()) + len(self._utf8.getstate()[0])
        if self._sampling.include_stop_str_in_output:
            text += stop
        else:
            beyond += len(stop.encode())
        self._cut_logprobs(max(0, self._bytes - beyond))
        output = self._release(text, self._bytes) or EngineOutput()
        output.finish_reason = "stop"
        output.stop_reason = stop
        return output

    def _cut_logprobs(self, end: int) -> None:
        """Let the log probabilities have no bytes beyond the first `end` of the text."""
        for held in self._held:
            if held.logprob is not None and held.end > end:
                held.logprob = _with_bytes(
                    held.logprob, held.logprob.bytes[: max(0, end - held.start)]
                )

    def _release(self, text: str, upto: int) -> EngineOutput | None:
        held = self._held
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        while held and held[0].end <= upto:
            made = held.popleft()
            ids += made.ids
            if made.logprob is not None:
                logprobs.append(made.logprob)
        if not (text or ids):
            return None
        wanted = self._sampling.logprobs is not None
        return EngineOutput(text=text, token_ids=ids, logprobs=logprobs if wanted else None)

    def _logprob(self, details: Details, data: bytes) -> TokenLogprob | None:
        wanted = self._sampling.logprobs
        if wanted is None or not details.completion_probabilities:
            return None
        return self._token_logprob(details.completion_probabilities[0], data, wanted)

    def _token_logprob(self, sampled: Probability, data: bytes, wanted: int) -> TokenLogprob:
        vocabulary = self._vocabulary
        return TokenLogprob(
            sampled.id,
            vocabulary.text_of[sampled.id],
            max(sampled.logprob, LOWEST_LOGPROB),
            data,
            tuple(
                TopLogprob(
                    other.id,
                    vocabulary.text_of[other.id],
                    max(other.logprob, LOWEST_LOGPROB),
                    vocabulary.bytes_of[other.id],
                )
                for other in sampled.top_logprobs[:wanted]
            ),
        )


def _with_bytes(logprob: TokenLogprob, data: bytes) -> TokenLogprob:
    return TokenLogprob(logprob.token_id, logprob.token, logprob.logprob, data, logprob.top)
