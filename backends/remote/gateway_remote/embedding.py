"""The embedding engine: sends token ids to one of the replicas and returns vectors."""

from __future__ import annotations

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineRequest,
    InvalidRequest,
    ModelInfo,
)
from gateway.sdk.engines import EmbeddingOnly, checked_tokens, only_embeds
from gateway_remote.client import ReplicaClient, StreamedReply
from gateway_remote.config import RemoteConfig
from gateway_remote.connecting import ReplicaEngine
from gateway_remote.dialects import ServedModelInfo
from gateway_remote.dispatch import Dispatcher, EncodedRequest, ReplyStream
from gateway_remote.pool import Pool
from gateway_remote.tokenizer import JsonTokenizer
from gateway_remote.vectors import VectorCalls


class RemoteEmbedder(EmbeddingOnly, ReplicaEngine):
    """Embedding models over HTTP. Satisfies `gateway.protocols.EmbeddingEngine`, and `Engine` without generation."""

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
        super().__init__(info, pool, Dispatcher(config, client, pool, _Silence()))
        self._served = served
        self._tokenizer = tokenizer
        matryoshka = config.matryoshka
        self._embedding = EmbeddingInfo(
            shorter=(None if cuts else False) if matryoshka is None else matryoshka,
            max_input_tokens=served.max_model_len,
        )
        cut_here = matryoshka is not None
        self._calls = VectorCalls(self._dispatcher, "/v1/embeddings", cut_here=cut_here)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"embeddings", "adapters"} if self._info.adapters else {"embeddings"})

    @property
    def tokenizer(self) -> JsonTokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._embedding

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors; see `EmbeddingEngine.embed`. Cancelling closes the connections, which aborts the calls on
        the servers."""
        served, adapter = self._served, request.adapter
        if adapter is not None and adapter not in served.adapters:
            known = ", ".join(served.adapters) or "none"
            raise InvalidRequest(
                f"There is no adapter '{adapter}'; known: {known}.",
                param="model",
                code="model_not_found",
            )
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


class _Silence:
    """The `Language` of an engine that never generates."""

    async def prepare(self, request: EngineRequest) -> None:
        raise only_embeds()

    def call(self, request: EngineRequest) -> EncodedRequest:
        raise only_embeds()

    def read(self, call: EncodedRequest, reply: StreamedReply) -> ReplyStream:
        raise only_embeds()
