"""The engine of a model that embeds: texts go out as token ids to one of the replicas, vectors come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    ModelInfo,
)
from gateway_remote.client import Client, Reply
from gateway_remote.config import RemoteConfig
from gateway_remote.dialects import Served
from gateway_remote.dispatch import Call, Dispatcher, Stream
from gateway_remote.pool import Pool
from gateway_remote.samples import Sample, describe, samples
from gateway_remote.tokenizer import JsonTokenizer
from gateway_remote.vectors import VectorCalls


class RemoteEmbedder:
    """Engines behind HTTP, for vectors. Satisfies `gateway.protocols.EmbeddingEngine`, and `Engine` without a word."""

    def __init__(
        self,
        *,
        config: RemoteConfig,
        info: ModelInfo,
        served: Served,
        cuts: bool,
        tokenizer: JsonTokenizer,
        client: Client,
        pool: Pool,
    ) -> None:
        """`cuts`: whether the servers themselves know what shorter vectors their model has."""
        self._info = info
        self._served = served
        self._tokenizer = tokenizer
        self._pool = pool
        self._dispatcher = Dispatcher(config, client, pool, _Silence())
        matryoshka = config.matryoshka
        self._embedding = EmbeddingInfo(
            shorter=(None if cuts else False) if matryoshka is None else matryoshka,
            max_input_tokens=served.max_model_len,
        )
        cut_here = matryoshka is not None
        self._calls = VectorCalls(self._dispatcher, "/v1/embeddings", cut_here=cut_here)

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"embeddings", "adapters"} if self._info.adapters else {"embeddings"})

    @property
    def tokenizer(self) -> JsonTokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> EmbeddingInfo:
        return self._embedding

    def describe(self) -> list[dict[str, object]]:
        """The replicas and how they do, one row each, for `gateway models`."""
        return describe(self._pool.replicas)

    def metrics(self) -> list[Sample]:
        """What is counted, as of now."""
        dispatcher = self._dispatcher
        return samples(self._pool, retries=dispatcher.retries, hedges=dispatcher.hedges)

    async def health(self) -> None:
        """Return if some replica can serve; raise `EngineUnavailable` with the reasons if none can."""
        self._dispatcher.healthy()

    async def check(self, request: EngineRequest) -> None:
        raise _only_embeds()

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        raise _only_embeds()

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """All vectors; see `EmbeddingEngine.embed`. Cancelling closes the connections, by which the servers abort."""
        served, adapter = self._served, request.adapter
        if adapter is not None and adapter not in served.adapters:
            known = ", ".join(served.adapters) or "none"
            raise InvalidRequest(
                f"There is no adapter '{adapter}'; known: {known}.",
                param="model",
                code="model_not_found",
            )
        for index in range(len(request.inputs)):
            self._check(request, index)
        fields: dict[str, object] = {"model": adapter or served.model}
        if request.priority:
            fields["priority"] = request.priority
        return await self._calls.embed(request, fields)

    def _check(self, request: EmbeddingRequest, index: int) -> None:
        ids = request.inputs[index]
        param = "input" if len(request.inputs) == 1 else f"input[{index}]"
        if isinstance(ids, str):
            raise Unsupported("This engine takes inputs as tokens.", param=param)
        most, vocabulary = self._served.max_model_len, self._served.vocabulary
        if most is not None and len(ids) > most:
            raise InvalidRequest(
                f"The input has {len(ids)} tokens, and the model embeds {most} at most. Shorten it.",
                param=param,
                code="context_length_exceeded",
            )
        wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise InvalidRequest(
                f"Token id {wrong} is outside the model's vocabulary of {vocabulary} tokens.",
                param=param,
            )


class _Silence:
    """The `Language` of an engine that is asked for no output."""

    def call(self, request: EngineRequest) -> Call:
        raise _only_embeds()

    def read(self, call: Call, reply: Reply) -> Stream:
        raise _only_embeds()


def _only_embeds() -> Unsupported:
    return Unsupported("This model only embeds. Use /v1/embeddings.", param="model")
