"""vLLM's `/inference/v1/generate`: token ids in, token ids out."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import EngineRequest
from gateway_remote.dialects.base import COMMON, Dialect, finish_reason, set_parameters
from gateway_remote.dialects.completions import VLLM, XGRAMMAR, StreamedUsage
from gateway_remote.failures import ReplicaErrorBody, failure_in_stream
from gateway_remote.output import OutputBuilder, SampledToken


class Candidate(Struct, gc=False):
    token_id: int
    logprob: float


class SampledPosition(Struct):
    """A sampled token; vLLM lists it first among its alternatives."""

    token_id: int
    logprob: float
    top_logprobs: list[Candidate] = []


class GenerateLogprobs(Struct):
    content: list[SampledPosition] | None = None


class GenerateChoice(Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: GenerateLogprobs | None = None


class GenerateChunk(Struct):
    """One event; other fields are ignored."""

    choices: list[GenerateChoice] = []
    usage: StreamedUsage | None = None
    error: ReplicaErrorBody | None = None


_decode = msgspec.json.Decoder(GenerateChunk).decode


class VllmGenerateDialect(Dialect):
    """vLLM 0.32 with `--enable-scale-out` or `--tokens-only`."""

    name = "vllm-generate"
    title = "vLLM"
    path = "/inference/v1/generate"
    capabilities = XGRAMMAR | VLLM
    eos_is_last = True

    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        self.refuse(request, ("prompt_logprobs",))
        if self._tokens_only:
            self.refuse(request, ("bad_words",))
        sampling = request.sampling
        stops = self.stops(sampling)
        params: dict[str, Any] = {
            **set_parameters(sampling, (*COMMON, "bad_words", "allowed_token_ids")),
            **self.constrain(request),
            # The gateway detokenizes; vLLM needs text only to match stop strings.
            "detokenize": bool(stops),
        }
        for name in ("temperature", "top_k", "seed", "logprobs"):
            if getattr(sampling, name) is not None:
                params[name] = getattr(sampling, name)
        if stops:
            params["stop"] = stops
        if request.vllm_xargs:
            params["extra_args"] = request.vllm_xargs
        limit = self.limit(sampling, prompt)
        if limit is not None:
            params["max_tokens"] = limit
        body: dict[str, Any] = {
            "request_id": request.request_id,
            "model": self.model(request),
            "token_ids": prompt,
            "sampling_params": params,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.constraint is not None:
            # The constraint itself covers the reasoning, so vLLM's reasoning parser must not delay it.
            body["reasoning_ended"] = True
        if request.prefix_salt:
            body["cache_salt"] = request.prefix_salt
        if request.priority:
            body["priority"] = request.priority
        return body

    def read(self, event: bytes, builder: OutputBuilder) -> None:
        chunk = _decode(event)
        for choice in chunk.choices:
            finish = None
            if choice.finish_reason is not None:
                finish = finish_reason(choice.finish_reason)
            ids = choice.token_ids or ()
            scored = None if choice.logprobs is None else _scored(choice.logprobs)
            if ids or finish is not None:
                builder.add(ids, scored, finish=finish, stop_reason=choice.stop_reason)
        if chunk.usage is not None:
            chunk.usage.add_to(builder)
        if chunk.error is not None:
            raise failure_in_stream(chunk.error)


def _scored(logprobs: GenerateLogprobs) -> list[SampledToken]:
    return [
        SampledToken(
            position.token_id,
            position.logprob,
            sorted(
                ((each.token_id, each.logprob) for each in position.top_logprobs),
                key=lambda entry: -entry[1],
            ),
        )
        for position in logprobs.content or ()
    ]
