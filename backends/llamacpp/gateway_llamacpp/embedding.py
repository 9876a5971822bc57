"""The embedding engine of llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineError,
    InvalidRequest,
    ModelInfo,
)
from gateway.sdk.engines import EmbeddingOnly, checked_tokens, shortened, vector_of_json
from gateway_llamacpp.chunks import ErrorReply
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.pooled import PooledEngine, ask
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer, translated


class _Vector(msgspec.Struct):
    embedding: str


class _Reply(msgspec.Struct):
    data: list[_Vector] = []
    error: ErrorReply | None = None


class LlamaCppEmbedder(EmbeddingOnly, PooledEngine):
    """llama.cpp in process, for embeddings. Implements `gateway.sdk.EmbeddingEngine`, and `Engine` without
    generation."""

    capabilities: frozenset[Capability] = frozenset({"embeddings"})

    def __init__(
        self,
        server: NativeServer,
        config: LlamaCppConfig,
        *,
        info: ModelInfo,
        embedding: EmbeddingInfo,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        clean_up: Callable[[], None],
    ) -> None:
        super().__init__(server, config, info=info, tokenizer=tokenizer, clean_up=clean_up)
        self.embedding = embedding
        self._vocabulary = vocabulary

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors. Each input waits for a slot, by priority (lowest first), then in order of arrival."""
        self._alive()
        inputs = [self._checked(request, index) for index in range(len(request.inputs))]
        vectors = await self._run_all([partial(_embedded, ids) for ids in inputs], request.priority)
        return EmbeddingResult(
            vectors=[shortened(vector_of_json(vector), request.dimensions) for vector in vectors],
            prompt_tokens=sum(map(len, inputs)),
        )

    def _checked(self, request: EmbeddingRequest, index: int) -> list[int]:
        if request.adapter is not None:
            raise InvalidRequest("This model has no adapters.", param="model")
        return checked_tokens(
            request,
            index,
            vocabulary=len(self._vocabulary),
            max_tokens=self.embedding.max_input_tokens,
        )


def dimensions_of(server: NativeServer) -> int:
    """Length of the model's vectors, found by making one. This also ensures that llama.cpp's loop has started.

    Raises `GatewayError` for a model that makes no vectors.
    """
    return len(vector_of_json(_embedded([0], server)))


def _embedded(ids: list[int], server: NativeServer) -> str:
    """The vector of one input, in base64. Runs in a thread."""
    body = msgspec.json.encode({"input": [ids], "encoding_format": "base64"})
    reply = ask(server.handle_embeddings, body, _Reply)
    if reply.error is not None:
        raise translated(reply.error)
    if len(reply.data) != 1:
        raise EngineError("llama.cpp gave no vector.")
    return reply.data[0].embedding
