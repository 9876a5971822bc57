"""`/v1/completions` with token ids: vLLM, SGLang, trtllm-serve."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from gateway.sdk import Capability, EngineRequest
from gateway.sdk.engines import LOWEST_LOGPROB
from gateway_remote.dialects.base import COMMON, Dialect, finish_reason, set_parameters
from gateway_remote.failures import ReplicaErrorBody, failure_in_stream
from gateway_remote.output import OutputBuilder, SampledToken

XGRAMMAR: frozenset[Capability] = frozenset(
    {"json_schema", "json_object", "regex", "gbnf", "structure", "triggered"}
)
VLLM: frozenset[Capability] = frozenset(
    {
        "tokens",
        "logprobs",
        "beam_search",
        "adapters",
        "lark",
        "allowed_token_ids",
        "vllm_xargs",
        "data_parallel_rank",
    }
)


class StreamedLogprobs(Struct, gc=False):
    """OpenAI's legacy log probabilities; only the fields that are read."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class StreamedChoice(Struct, gc=False):
    """A piece of the single choice. `matched_stop` of SGLang is `stop_reason` of vLLM and TensorRT-LLM."""

    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None
    logprobs: StreamedLogprobs | None = None


class PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None


class StreamedUsage(Struct, gc=False):
    prompt_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None

    def add_to(self, builder: OutputBuilder) -> None:
        details = self.prompt_tokens_details
        builder.usage(self.prompt_tokens, None if details is None else details.cached_tokens)
        if builder.finished and self.prompt_tokens:
            builder.complete = True  # whether or not the server says so


class CompletionChunk(Struct, gc=False):
    """One event; other fields are ignored."""

    choices: list[StreamedChoice] = []
    usage: StreamedUsage | None = None
    error: ReplicaErrorBody | None = None


_decode = msgspec.json.Decoder(CompletionChunk).decode


class CompletionsDialect(Dialect):
    """Shared part of the three servers."""

    path = "/v1/completions"
    refused: ClassVar[tuple[str, ...]]
    """Parameters that this server does not support."""

    def read(self, event: bytes, builder: OutputBuilder) -> None:
        chunk = _decode(event)
        for choice in chunk.choices:
            if choice.token_ids and choice.finish_reason is None and choice.logprobs is None:
                builder.add(choice.token_ids)  # nearly each token
            else:
                self._read_choice(choice, builder)
        if chunk.usage is not None:
            chunk.usage.add_to(builder)
        if chunk.error is not None:
            raise failure_in_stream(chunk.error)

    def _read_choice(self, choice: StreamedChoice, builder: OutputBuilder) -> None:
        finish = None
        if choice.finish_reason is not None:
            finish = finish_reason(choice.finish_reason)
        reason = choice.stop_reason if choice.matched_stop is None else choice.matched_stop
        if choice.token_ids is None and (choice.text or finish is not None):
            # An old server that returns no token ids.
            builder.add_text(choice.text)
            if finish is not None:
                builder.end(finish, reason)
            return
        ids = choice.token_ids or ()
        scored = None if choice.logprobs is None else self._scored(ids, choice.logprobs)
        if ids or finish is not None:
            builder.add(ids, scored, finish=finish, stop_reason=reason)

    def _scored(
        self, ids: list[int] | tuple[int, ...], logprobs: StreamedLogprobs
    ) -> list[SampledToken]:
        values, tops = logprobs.token_logprobs, logprobs.top_logprobs or []
        scored: list[SampledToken] = []
        for place, token_id in enumerate(ids):
            value = values[place] if place < len(values) else None
            top = tops[place] if place < len(tops) else None
            ranked = sorted((top or {}).items(), key=lambda entry: -entry[1])
            found = [(self._token_id(text), each) for text, each in ranked]
            scored.append(
                SampledToken(
                    token_id,
                    LOWEST_LOGPROB if value is None else value,
                    [(index, each) for index, each in found if index is not None],
                )
            )
        return scored

    def _token_id(self, text: str) -> int | None:
        """The id of a token given as text; None if the text is not exactly one token."""
        if text.startswith("token_id:"):
            return int(text[9:])
        ids = self.tokenizer.encode(text)
        return ids[0] if len(ids) == 1 else None

    def _common(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        """Body fields common to all three servers."""
        self.refuse(request, self.refused)
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model(request),
            "prompt": prompt,
            "stream": True,
            "stream_options": {"include_usage": True},
            **set_parameters(sampling, COMMON),
            **self.constrain(request),
        }
        # `set_parameters` skips zeros, which are meaningful here.
        for name in ("temperature", "presence_penalty", "frequency_penalty", "seed", "top_k"):
            if getattr(sampling, name) is not None:
                body[name] = getattr(sampling, name)
        limit = self.limit(sampling, prompt)
        if limit is not None:
            body["max_tokens"] = limit
        if stops := self.stops(sampling):
            body["stop"] = stops
        return body


class VllmDialect(CompletionsDialect):
    """vLLM's `/v1/completions` (0.32)."""

    name = "vllm"
    title = "vLLM's /v1/completions"
    capabilities = XGRAMMAR | VLLM
    eos_is_last = True
    needs_length = True
    refused = ("prompt_logprobs",)

    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        sampling = request.sampling
        body = self._common(request, prompt) | {
            "return_token_ids": True,
            "request_id": request.request_id,
        }
        if sampling.bad_words:
            body["bad_words"] = sampling.bad_words
        if sampling.allowed_token_ids:
            body["allowed_token_ids"] = sampling.allowed_token_ids
        if request.vllm_xargs:
            body["vllm_xargs"] = request.vllm_xargs
        if sampling.logprobs is not None:
            body["logprobs"] = sampling.logprobs
            body["return_tokens_as_token_ids"] = True
        if request.prefix_salt:
            body["cache_salt"] = request.prefix_salt
        if request.priority:
            body["priority"] = request.priority
        return body


class SglangDialect(CompletionsDialect):
    """SGLang's `/v1/completions`. Written from its public source; not run."""

    name = "sglang"
    title = "SGLang"
    capabilities = XGRAMMAR | {"tokens", "logprobs", "adapters"}
    needs_length = True
    refused = ("prompt_logprobs", "bad_words", "priority")

    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        body = self._common(request, prompt) | {
            "return_token_ids": True,
            "rid": request.request_id,
        }
        if body.get("top_k") == 0:
            body["top_k"] = -1
        if request.adapter is not None:
            body |= {"model": self.served.model, "lora_path": self.model(request)}
        if request.sampling.logprobs is not None:
            body["logprobs"] = request.sampling.logprobs
        if request.prefix_salt:
            body["cache_salt"] = request.prefix_salt
        return body


class TrtllmDialect(CompletionsDialect):
    """trtllm-serve's `/v1/completions`, which rejects unknown fields. Written from its public source; not run.

    Token ids are returned only without `detokenize`, so only the gateway matches stop strings.
    """

    name = "trtllm"
    title = "TensorRT-LLM"
    capabilities = XGRAMMAR | {"tokens", "logprobs"}
    refused = ("prompt_logprobs", "bad_words", "priority", "cache_salt", "adapter")

    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        body = self._common(request, prompt) | {"detokenize": False}
        body.pop("stop", None)
        if body.get("top_k", 0) < 0:
            body["top_k"] = 0
        if request.sampling.logprobs is not None:
            # 0 would disable them
            body["logprobs"] = max(1, request.sampling.logprobs)
        return body
