"""llama-server's native `/completion`, which returns token ids (`/v1/completions` does not)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import EngineRequest
from gateway.sdk.engines import LOWEST_LOGPROB
from gateway_remote.dialects.base import Dialect
from gateway_remote.failures import ReplicaErrorBody, ReplicaFailure, failure_in_stream
from gateway_remote.output import OutputBuilder, SampledToken

_SEEDS = 2**32 - 1
"""Seeds are 32-bit, and the highest value means random."""
_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
}


class Candidate(Struct, gc=False):
    id: int
    logprob: float


class Probability(Struct):
    id: int
    logprob: float
    top_logprobs: list[Candidate] = []


class LlamaServerTimings(Struct, gc=False):
    cache_n: int | None = None


class LlamaServerChunk(Struct):
    """One event; other fields are ignored.

    A token that ends inside a UTF-8 character has no event. It is counted in `tokens_predicted` of the next event,
    whose `content` includes its bytes.
    """

    content: str = ""
    tokens: list[int] = []
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    stop: bool = False
    stop_type: str = "none"
    timings: LlamaServerTimings | None = None
    completion_probabilities: list[Probability] = []
    error: ReplicaErrorBody | None = None


_decode = msgspec.json.Decoder(LlamaServerChunk).decode


class LlamaCppDialect(Dialect):
    """The dialect of llama-server. The gateway matches stop strings and stop tokens, because the server returns no ids for
    text that it holds back."""

    name = "llamacpp"
    title = "llama-server"
    path = "/completion"
    capabilities = frozenset(
        {
            "tokens",
            "logprobs",
            "json_schema",
            "json_object",
            "regex",
            "gbnf",
            "structure",
            "triggered",
        }
    )

    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        self.refuse(request, ("prompt_logprobs", "bad_words", "min_tokens", "priority", "adapter"))
        sampling = request.sampling
        body: dict[str, Any] = {
            "prompt": prompt,
            "stream": True,
            "return_tokens": True,
            "n_predict": self.room(sampling, len(prompt)),
            # Prefixes must not be shared across salts or owners, and llama-server has no salts. A seeded request must
            # be repeatable, and a cached prefix changes the last bits of the logits.
            "cache_prompt": request.prefix_salt is None and sampling.seed is None,
            **self.constrain(request),
        }
        for name, theirs in _NAMES.items():
            if (value := getattr(sampling, name)) is not None:
                body[theirs] = value
        if sampling.seed is not None:
            body["seed"] = sampling.seed % _SEEDS
        if sampling.ignore_eos:
            body["ignore_eos"] = True
        if sampling.logit_bias:
            body["logit_bias"] = list(sampling.logit_bias.items())
        if sampling.logprobs is not None:
            body["n_probs"] = max(1, sampling.logprobs)
        return body

    def read(self, event: bytes, builder: OutputBuilder) -> None:
        chunk = _decode(event)
        if chunk.error is not None:
            raise failure_in_stream(chunk.error)
        if not chunk.stop and not chunk.tokens and not chunk.tokens_predicted:
            raise ReplicaFailure("an event is not one of llama-server's")
        if chunk.tokens:
            self._read_tokens(chunk, builder)
        if chunk.stop:
            builder.usage(chunk.tokens_evaluated, chunk.timings.cache_n if chunk.timings else None)
            builder.end("stop" if chunk.stop_type in ("eos", "word") else "length", None)
            builder.complete = True

    def _read_tokens(self, chunk: LlamaServerChunk, builder: OutputBuilder) -> None:
        ids: list[int] = chunk.tokens
        scored = [
            SampledToken(
                each.id,
                each.logprob,
                [(candidate.id, candidate.logprob) for candidate in each.top_logprobs],
            )
            for each in chunk.completion_probabilities
        ]
        before = b""
        lost = chunk.tokens_predicted - builder.count - len(ids)
        if lost > 0:
            recovered, before = self._recover(chunk, lost)
            ids = [*recovered, *ids]
            builder.count += lost - len(recovered)
            scored = (
                [*(SampledToken(index, LOWEST_LOGPROB) for index in recovered), *scored]
                if scored
                else []
            )
        stop_ids = builder.stop_token_ids
        if stop_ids and ids[-1] in stop_ids:
            builder.add(ids, scored or None, before=before, finish="stop", stop_reason=ids[-1])
            builder.cut()
        else:
            builder.add(ids, scored or None, before=before)

    def _recover(self, chunk: LlamaServerChunk, lost: int) -> tuple[list[int], bytes]:
        """Ids of the `lost` tokens that precede the event's own, or else their bytes."""
        own = chunk.tokens[-1]
        again = self.tokenizer.encode(chunk.content)
        if len(again) == lost + 1 and again[-1] == own:
            return again[:-1], b""
        data = chunk.content.encode()
        return [], data.removesuffix(self.tokenizer.bytes_of[own])
