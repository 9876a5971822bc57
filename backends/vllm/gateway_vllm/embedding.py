"""The embedding engine: uses vLLM's pooling. Imports vLLM."""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

from vllm.inputs import tokens_input  # type: ignore[import-not-found,unused-ignore]
from vllm.pooling_params import PoolingParams  # type: ignore[import-not-found,unused-ignore]

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineContext,
)
from gateway.sdk.engines import EmbeddingOnly, checked_tokens, shortened
from gateway_vllm.config import VllmConfig
from gateway_vllm.host import Host
from gateway_vllm.pooled import PooledEngine


class VllmEmbedder(EmbeddingOnly, PooledEngine):
    """vLLM in process, for embeddings. Implements `gateway.sdk.EmbeddingEngine`, and `Engine` without
    generation."""

    def __init__(self, host: Host, config: VllmConfig, context: EngineContext) -> None:
        llm, model = host.llm, host.llm.model_config
        super().__init__(host, config, context)
        self._vocabulary: int = max(model.get_vocab_size(), llm.get_tokenizer().max_token_id + 1)
        lengths = model.matryoshka_dimensions
        self.embedding = EmbeddingInfo(
            dimensions=model.embedding_size,
            shorter=tuple(lengths) if lengths else bool(model.is_matryoshka),
            max_input_tokens=model.max_model_len,
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"embeddings", "adapters"} if self.info.adapters else {"embeddings"})

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors; see `EmbeddingEngine.embed`."""
        self._check(request)
        inputs = [
            checked_tokens(
                request,
                index,
                vocabulary=self._vocabulary,
                max_tokens=self.embedding.max_input_tokens,
            )
            for index in range(len(request.inputs))
        ]
        adapter = await self._host.adapter(request.adapter)
        vectors = await self._run_all(
            [partial(self._embed, request, index, ids, adapter) for index, ids in enumerate(inputs)]
        )
        return EmbeddingResult(vectors=vectors, prompt_tokens=sum(map(len, inputs)))

    async def _embed(
        self, request: EmbeddingRequest, index: int, ids: list[int], adapter: Any | None
    ) -> array[float]:
        output = await self._encode(
            tokens_input(ids),
            # Vectors are shortened here, because vLLM does so only for models marked in their configuration.
            PoolingParams(task="embed"),
            request,
            index,
            adapter,
            param=("input",),
            result="vector",
        )
        vector = array("f")
        vector.frombytes(output.data.float().cpu().numpy().tobytes())
        return shortened(vector, request.dimensions)
