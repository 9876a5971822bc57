"""The engine of a model that embeds: texts into vLLM's pooling, vectors out of it. Imports vLLM."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]
from vllm.inputs import tokens_input  # type: ignore[import-not-found,unused-ignore]
from vllm.pooling_params import PoolingParams  # type: ignore[import-not-found,unused-ignore]

from gateway.engines.tokenizer import HfTokenizer
from gateway.engines.vectors import shortened
from gateway.errors import EngineError, InvalidRequest, Unsupported
from gateway.hookspecs import EngineContext
from gateway.protocols import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    ModelInfo,
)
from gateway_vllm.config import Config
from gateway_vllm.errors import refused
from gateway_vllm.host import FAILURES, Host
from gateway_vllm.model_info import model_info

_AT_ONCE = 256
"""Inputs of one request that vLLM is given at once: more than it computes together, so that it never waits for us."""


class VllmEmbedder:
    """vLLM in process, for vectors. Satisfies `gateway.protocols.EmbeddingEngine`, and `Engine` without a word."""

    def __init__(self, host: Host, config: Config, context: EngineContext) -> None:
        llm, model = host.llm, host.llm.model_config
        self._host = host
        self._tokenizer = HfTokenizer(llm.get_tokenizer())
        self._info = model_info(llm, config, context)
        self._vocabulary: int = max(model.get_vocab_size(), llm.get_tokenizer().max_token_id + 1)
        lengths = model.matryoshka_dimensions
        self._embedding = EmbeddingInfo(
            dimensions=model.embedding_size,
            shorter=tuple(lengths) if lengths else bool(model.is_matryoshka),
            max_input_tokens=model.max_model_len,
        )
        self._takes_priority = config.scheduling_policy == "priority"
        self._traces = llm.observability_config.otlp_traces_endpoint is not None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"embeddings", "adapters"} if self._info.adapters else {"embeddings"})

    @property
    def tokenizer(self) -> HfTokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._embedding

    def forget(self) -> None:
        """Let go of vLLM, which has ended: there is nothing of it here."""

    async def health(self) -> None:
        """Return if the engine can serve now; raise `EngineUnavailable` with the reason if not."""
        self._host.require_life()

    async def check(self, request: EngineRequest) -> None:
        raise _only_embeds()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        raise _only_embeds()
        yield EngineOutput()

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """All vectors; each input is a request of its own to vLLM, which computes them together."""
        self._host.require_life()
        if request.priority and not self._takes_priority:
            raise InvalidRequest(
                "This model does not schedule by priority. Leave priority out, or have the server set "
                'scheduling_policy = "priority".',
                param="priority",
            )
        inputs = [self._checked(request, index) for index in range(len(request.inputs))]
        adapter = await self._host.adapter(request.adapter)
        vectors: list[array[float]] = [array("f")] * len(inputs)
        todo = iter(enumerate(inputs))

        async def work() -> None:
            for index, ids in todo:
                vectors[index] = await self._one(request, index, ids, adapter)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(inputs))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return EmbeddingResult(vectors=vectors, prompt_tokens=sum(map(len, inputs)))

    async def _one(
        self, request: EmbeddingRequest, index: int, ids: list[int], adapter: Any | None
    ) -> array[float]:
        outputs = self._host.llm.encode(
            tokens_input(ids),
            # Shortened here: vLLM does so only where a model's own configuration is marked.
            PoolingParams(task="embed"),
            f"{request.request_id}-{index}",
            lora_request=adapter,
            trace_headers=request.trace_headers if self._traces else None,
            priority=request.priority,
        )
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if output.finished:
                        vector = array("f")
                        vector.frombytes(output.outputs.data.float().cpu().numpy().tobytes())
                        return shortened(vector, request.dimensions)
        except FAILURES as error:
            raise self._host.failure(error) from error
        except VLLMClientError as error:
            raise refused(error, param="input") from error
        raise EngineError("vLLM gave no vector for this request. Others may succeed.")

    def _checked(self, request: EmbeddingRequest, index: int) -> list[int]:
        ids = request.inputs[index]
        param = "input" if len(request.inputs) == 1 else f"input[{index}]"
        if isinstance(ids, str):
            raise Unsupported("This engine takes inputs as tokens.", param=param)
        most = self._embedding.max_input_tokens
        if most is not None and len(ids) > most:
            raise InvalidRequest(
                f"The input has {len(ids)} tokens, and the model embeds {most} at most. Shorten it.",
                param=param,
                code="context_length_exceeded",
            )
        wrong = next((token for token in ids if not 0 <= token < self._vocabulary), None)
        if wrong is not None:
            raise InvalidRequest(
                f"Token id {wrong} is outside the model's vocabulary of {self._vocabulary} tokens.",
                param=param,
            )
        return ids if isinstance(ids, list) else list(ids)


def _only_embeds() -> Unsupported:
    return Unsupported("This model only embeds. Use /v1/embeddings.", param="model")
