"""The embedding engine: sends token ids to one of the replicas and returns vectors."""

from __future__ import annotations

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    ModelInfo,
)
from gateway.sdk.engines import EmbeddingOnly, checked_tokens, only_embeds, unknown_adapter
from gateway_remote.client import ReplicaClient
from gateway_remote.config import RemoteConfig
from gateway_remote.connecting import NoGeneration, ReplicaEngine
from gateway_remote.dialects import ServedModelInfo
from gateway_remote.dispatch import Dispatcher
from gateway_remote.pool import Pool
from gateway_remote.tokenizer import JsonTokenizer
from gateway_remote.vectors import VectorCalls


class RemoteEmbedder(EmbeddingOnly, ReplicaEngine):
    """Embedding models over HTTP. Implements `gateway.sdk.EmbeddingEngine`, and `Engine` without generation."""

    def __init__(
        self,
        *,
        config: RemoteConfig,
        info: ModelInfo,
        served: ServedModelInfo,
        cuts: bool,
        tokenizer: JsonTokenizer,
        client: ReplicaClient,
        pool: Pool,
    ) -> None:
        """`cuts`: whether the servers decide which shorter vectors their model supports."""
        super().__init__(info, pool, Dispatcher(config, client, pool, NoGeneration(only_embeds)))
        self._served = served
        self.tokenizer = tokenizer
        matryoshka = config.matryoshka
        self.embedding = EmbeddingInfo(
            shorter=(None if cuts else False) if matryoshka is None else matryoshka,
            max_input_tokens=served.max_model_len,
        )
        cut_here = matryoshka is not None
        self._calls = VectorCalls(self._dispatcher, "/v1/embeddings", cut_here=cut_here)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"embeddings", "adapters"} if self.info.adapters else {"embeddings"})

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors; see `EmbeddingEngine.embed`. Cancelling closes the connections, which aborts the calls on
        the servers."""
        served, adapter = self._served, request.adapter
        if adapter is not None and adapter not in served.adapters:
            raise unknown_adapter(adapter, served.adapters)
        for index in range(len(request.inputs)):
            checked_tokens(
                request,
                index,
                vocabulary=served.vocabulary,
                max_tokens=served.max_model_len,
            )
        fields: dict[str, object] = {"model": adapter or served.model}
        if request.priority:
            fields["priority"] = request.priority
        return await self._calls.embed(request, fields)
