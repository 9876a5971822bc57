"""Converts TensorRT-LLM's tokens to engine outputs: text, log probabilities and the end of one generation.

Pure and synchronous. TensorRT-LLM's own text may contain the start of a stop string before it is matched, and the end
token's text if special tokens are kept. Therefore only tokens are requested, and text is decoded here from their bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.sdk import EngineError, EngineOutput, FinishReason, Sampling, TokenLogprob
from gateway.sdk.engines import (
    HfTokenizer,
    ScoredToken,
    StopStrings,
    TextAligner,
    as_prompt,
    scored,
)

_FINISH: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "cancelled": "abort"}


class TokenIdLogprob(Protocol):
    """TensorRT-LLM's class of this name; `rank` is 1 for the most likely token."""

    logprob: float
    rank: int | None


class TrtllmGeneration:
    """State of one generation. Call `feed` until an output has a finish reason."""

    def __init__(
        self, tokenizer: HfTokenizer, sampling: Sampling, *, ends: tuple[int, ...]
    ) -> None:
        self._sampling = sampling
        self._piece = tokenizer.piece
        self._hidden = tokenizer.special_ids if sampling.skip_special_tokens else frozenset()
        self._ending = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            self._ending |= frozenset(ends)
        self._stops = StopStrings(sampling.stop)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._aligner = None
        if sampling.logprobs is not None:
            self._aligner = TextAligner(self._piece, self._hidden)
        self._unsearched = sampling.min_tokens or 0
        """Number of further tokens in whose text stop strings are ignored."""

    def feed(
        self,
        ids: Sequence[int],
        logprobs: Sequence[Mapping[int, TokenIdLogprob]],
        finish_reason: str | None,
        stop_reason: str | int | None = None,
    ) -> EngineOutput:
        """The output of the tokens added by one step.

        Raises `EngineError` if TensorRT-LLM ended the request for an internal reason.
        """
        finish = _finish(finish_reason)
        ended_by_token = finish == "stop" and bool(ids) and ids[-1] in self._ending
        hides_end = ended_by_token and not self._sampling.include_stop_str_in_output
        text, stop = self._text(ids[:-1] if hides_end else ids, last=finish is not None)
        if stop is not None:
            finish, stop_reason, hides_end = "stop", stop, False
        elif ended_by_token:
            stop_reason = ids[-1]
        given = EngineOutput(text=text, token_ids=ids, finish_reason=finish)
        if finish is not None:
            given.stop_reason = stop_reason
        if self._aligner is not None:
            given.logprobs = self._aligner.push(
                self._scored(ids, logprobs), text, ended_by_token=hides_end, last=finish is not None
            )
            # Token ids are held back with their log probabilities, so that each output has as many of each.
            given.token_ids = [token.token_id for token in given.logprobs]
        return given

    def _text(self, ids: Sequence[int], *, last: bool) -> tuple[str, str | None]:
        """The text that can be emitted, and the stop string that ended it, if any."""
        early = min(self._unsearched, len(ids))
        self._unsearched -= early
        text = ""
        if early:
            text, _, _ = self._stops.feed(self._decode(ids[:early]), searching=False)
        new = self._decode(ids[early:])
        allowed, stop, _ = self._stops.feed(new)
        text += allowed
        if stop is not None:
            return text + (stop if self._sampling.include_stop_str_in_output else ""), stop
        return text + (self._stops.rest() if last else ""), None

    def _decode(self, ids: Sequence[int]) -> str:
        piece, hidden = self._piece, self._hidden
        return self._utf8.decode(b"".join([piece(i)[1] for i in ids if i not in hidden]))

    def _scored(
        self, ids: Sequence[int], logprobs: Sequence[Mapping[int, TokenIdLogprob]]
    ) -> list[ScoredToken]:
        if len(ids) != len(logprobs):
            raise EngineError(
                f"TensorRT-LLM gave log probabilities for {len(logprobs)} of {len(ids)} tokens."
            )
        wanted = self._sampling.logprobs or 0
        return [
            _score(i, entry, wanted, self._piece) for i, entry in zip(ids, logprobs, strict=True)
        ]

    def prompt_logprobs(
        self, prompt: Sequence[int], logprobs: Sequence[Mapping[int, TokenIdLogprob]]
    ) -> list[TokenLogprob | None]:
        """The prompt's tokens. `told` starts with the second token, and ends with the first generated one."""
        if len(logprobs) < len(prompt) - 1:
            raise EngineError(
                f"TensorRT-LLM gave log probabilities for {len(logprobs)} of {len(prompt) - 1} prompt tokens."
            )
        wanted = self._sampling.prompt_logprobs or 0
        made: list[TokenLogprob | None] = [None]
        for token_id, entry in zip(prompt[1:], logprobs, strict=False):
            made.append(as_prompt(_score(token_id, entry, wanted, self._piece), self._piece))
        return made


def _score(
    token_id: int, entry: Mapping[int, TokenIdLogprob], wanted: int, piece: Any
) -> ScoredToken:
    """A token with its `wanted` most likely alternatives. The token itself is among the entries, last if it is not one
    of them."""
    own = entry.get(token_id)
    if own is None:
        raise EngineError(f"TensorRT-LLM gave no log probability for the token {token_id}.")
    best = sorted(((each.logprob, i) for i, each in entry.items()), reverse=True)[:wanted]
    return scored(token_id, own.logprob, [(i, value) for value, i in best], piece)


def _finish(reason: str | None) -> FinishReason | None:
    if reason is None:
        return None
    if reason == "timeout":
        raise EngineError("TensorRT-LLM ended this request at its own time limit.")
    finish = _FINISH.get(reason)
    if finish is None:
        raise EngineError(f"TensorRT-LLM ended this request with '{reason}'.")
    return finish
