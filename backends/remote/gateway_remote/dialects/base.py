"""Base of the dialects: converts requests to bodies, and events to tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec import Struct

from gateway.sdk import (
    Capability,
    EngineRequest,
    FinishReason,
    InvalidRequest,
    Sampling,
    Unsupported,
)
from gateway.sdk.engines import context_exceeded, prompt_tokens, unknown_adapter
from gateway_remote.compiling import PreparedStructures
from gateway_remote.failures import ReplicaFailure
from gateway_remote.output import OutputBuilder
from gateway_remote.structure import Structures
from gateway_remote.tokenizer import JsonTokenizer

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "abort": "abort",
    "cancelled": "abort",
    "error": "error",
    "timeout": "error",
    "repetition": "stop",
}
"""Maps the servers' finish reasons to the gateway's."""


def finish_reason(said: str) -> FinishReason:
    """The gateway's finish reason for a server's. Raises `ReplicaFailure` for an unknown one."""
    if (finish := _FINISH.get(said)) is None:
        raise ReplicaFailure(f"its finish reason is {said!r}")
    return finish


class ServedModelInfo(Struct, frozen=True, kw_only=True):
    """Facts about the served model that requests depend on."""

    model: str
    """The model's name on the servers."""
    max_model_len: int | None
    vocabulary: int
    """Exclusive upper bound of token ids."""
    adapters: tuple[str, ...] = ()


class Dialect(ABC):
    """One kind of server. Its only state is `served`."""

    name: ClassVar[str]
    title: ClassVar[str]
    """Display name."""
    path: ClassVar[str]
    capabilities: frozenset[Capability]
    eos_is_last: ClassVar[bool] = False
    """Whether the final token ids include the token that ended the output."""
    needs_length: ClassVar[bool] = False
    """Whether requests must set a token limit because the server's default is too small."""

    def __init__(
        self,
        served: ServedModelInfo,
        tokenizer: JsonTokenizer,
        structures: Structures,
        *,
        tokens_only: bool = False,
    ) -> None:
        self.served = served
        self.tokenizer = tokenizer
        self._structures = structures
        self._tokens_only = tokens_only
        if tokens_only:
            self.capabilities = self.capabilities & {
                "tokens",
                "logprobs",
                "adapters",
                "allowed_token_ids",
                "data_parallel_rank",
            }

    async def prepare(self, request: EngineRequest) -> None:
        """Do the slow part of `body`, in a way that can be cancelled. Raises `InvalidRequest`."""
        if request.constraint is not None and isinstance(self._structures, PreparedStructures):
            await self._structures.prepare(request.constraint, request.owner)

    @abstractmethod
    def body(self, request: EngineRequest, prompt: list[int]) -> dict[str, Any]:
        """The JSON body of `request`. Raises `InvalidRequest` or `Unsupported`, naming the parameter."""

    @abstractmethod
    def read(self, event: bytes, builder: OutputBuilder) -> None:
        """Pass an event to `builder`.

        Raises `msgspec.DecodeError` for a malformed event, and the exceptions of `failures` for errors.
        """

    def prompt(self, request: EngineRequest) -> list[int]:
        """The validated prompt tokens. Raises `InvalidRequest`."""
        ids = prompt_tokens(request, vocabulary=self.served.vocabulary)
        length = self.served.max_model_len
        if length is not None and len(ids) >= length:
            raise context_exceeded(len(ids), length)
        return ids

    def room(self, sampling: Sampling, prompt_length: int) -> int:
        """Like `limit`, for a prompt of `prompt_length` tokens; -1 if unknown."""
        limit = self._limit(sampling, prompt_length)
        return -1 if limit is None else limit

    def limit(self, sampling: Sampling, prompt: list[int]) -> int | None:
        """Maximum number of tokens to generate: the requested limit, capped by the remaining context. None if
        unknown."""
        return self._limit(sampling, len(prompt))

    def _limit(self, sampling: Sampling, prompt_length: int) -> int | None:
        wanted = sampling.max_tokens
        if wanted is not None and wanted < 1:
            raise InvalidRequest("max_tokens must be at least 1.", param="max_tokens")
        length = self.served.max_model_len
        if length is None:
            return wanted
        if prompt_length >= length:
            raise context_exceeded(prompt_length, length)
        room = length - prompt_length
        return room if wanted is None else min(wanted, room)

    def model(self, request: EngineRequest) -> str:
        """The server's name of the requested model or adapter."""
        adapter = request.adapter
        if adapter is None:
            return self.served.model
        if adapter not in self.served.adapters:
            raise unknown_adapter(adapter, self.served.adapters)
        return adapter

    def refuse(self, request: EngineRequest, names: Iterable[str]) -> None:
        """Raise `Unsupported` for the first of the named parameters that `request` uses. Parameters are never dropped
        silently."""
        for name in names:
            holder = request if name in ("cache_salt", "priority", "adapter") else request.sampling
            value = getattr(holder, name)
            if value is not None if name == "prompt_logprobs" else value:
                raise Unsupported(
                    f"{self.title} does not take {name}. Leave it out.",
                    param="model" if name == "adapter" else name,
                )

    def stops(self, sampling: Sampling) -> list[str]:
        """Stop strings sent to the server. The gateway matches them in any case."""
        return [] if self._tokens_only else [stop for stop in sampling.stop if stop]

    def constrain(self, request: EngineRequest) -> dict[str, Any]:
        """Body fields that enforce the request's constraint."""
        if request.constraint is None:
            return {}
        if self._tokens_only:
            raise Unsupported(f"{self.title} runs without a tokenizer, and enforces nothing.")
        if request.sampling.ignore_eos:
            raise InvalidRequest(
                "ignore_eos cannot be combined with an enforced output, which ends where it is complete.",
                param="ignore_eos",
            )
        return self._structures.fields(request.constraint)


def set_parameters(sampling: Sampling, names: Iterable[str]) -> dict[str, Any]:
    """The parameters that are set, by name."""
    return {
        name: value
        for name in names
        if (value := getattr(sampling, name)) not in (None, (), False, {})
    }


COMMON = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "min_tokens",
    "stop_token_ids",
    "logit_bias",
    "ignore_eos",
)
"""Parameters that vLLM, SGLang and TensorRT-LLM name as vLLM's `SamplingParams` does."""
