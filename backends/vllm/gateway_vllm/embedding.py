"""The embedding engine: uses vLLM's pooling. Imports vLLM."""

from __future__ import annotations

import asyncio
from array import array
from contextlib import aclosing
from typing import Any

from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]
from vllm.inputs import tokens_input  # type: ignore[import-not-found,unused-ignore]
from vllm.pooling_params import PoolingParams  # type: ignore[import-not-found,unused-ignore]

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineContext,
    EngineError,
    InvalidRequest,
    ModelInfo,
)
from gateway.sdk.engines import EmbeddingOnly, HfTokenizer, checked_tokens, shortened
from gateway_vllm.config import VllmConfig
from gateway_vllm.errors import refused
from gateway_vllm.host import FAILURES, Host
from gateway_vllm.model_info import model_info

_AT_ONCE = 256
"""Maximum number of inputs of one request submitted to vLLM at once: more than one batch, so that vLLM is never
idle."""


class VllmEmbedder(EmbeddingOnly):
    """vLLM in process, for embeddings. Satisfies `gateway.protocols.EmbeddingEngine`, and `Engine` without
    generation."""

    def __init__(self, host: Host, config: VllmConfig, context: EngineContext) -> None:
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
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return 2**31 - 1 if self._takes_priority else None

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

    async def end_helpers(self) -> None:
        """Does nothing: there are no helper processes."""

    def forget(self) -> None:
        """Does nothing: this object holds no reference to vLLM."""

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason."""
        self._host.require_life()

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors. Each input is a separate vLLM request, so that vLLM batches them."""
        self._host.require_life()
        if request.priority and not self._takes_priority:
            raise InvalidRequest(
                "This model does not schedule by priority. Leave priority out, or have the server set "
                'scheduling_policy = "priority".',
                param="priority",
            )
        inputs = [
            checked_tokens(
                request,
                index,
                vocabulary=self._vocabulary,
                max_tokens=self._embedding.max_input_tokens,
            )
            for index in range(len(request.inputs))
        ]
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
            # Vectors are shortened here, because vLLM does so only for models marked in their configuration.
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
