"""The reranking engine: sends texts to one of the replicas and returns scores."""

from __future__ import annotations

from typing import Any

from gateway.sdk import (
    Capability,
    ModelInfo,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
)
from gateway.sdk.engines import ScoringOnly, only_scores, unknown_adapter
from gateway_remote.client import ReplicaClient
from gateway_remote.config import RemoteConfig
from gateway_remote.connecting import NoGeneration, ReplicaEngine
from gateway_remote.dispatch import Dispatcher
from gateway_remote.pool import Pool
from gateway_remote.score_calls import ScoreCalls


class RemoteReranker(ScoringOnly, ReplicaEngine):
    """Reranking models over HTTP. Implements `gateway.sdk.ScoringEngine`, and `Engine` without generation."""

    def __init__(
        self,
        *,
        config: RemoteConfig,
        info: ModelInfo,
        model: str,
        truncates: bool,
        client: ReplicaClient,
        pool: Pool,
    ) -> None:
        """`model` is the model's name on the servers; `truncates`: whether they truncate texts on request."""
        super().__init__(info, pool, Dispatcher(config, client, pool, NoGeneration(only_scores)))
        self._model = model
        self.scoring = ScoringInfo(max_input_tokens=info.max_model_len, truncates=truncates)
        self._calls = ScoreCalls(self._dispatcher, "/rerank")

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"rerank", "adapters"} if self.info.adapters else {"rerank"})

    @property
    def tokenizer(self) -> None:
        """None: the servers combine and tokenize the texts of a pair."""
        return

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Return all scores; see `ScoringEngine.score`. Cancelling closes the connections, which aborts the calls on the
        servers."""
        adapter = request.adapter
        if adapter is not None and adapter not in self.info.adapters:
            raise unknown_adapter(adapter, self.info.adapters)
        fields: dict[str, Any] = {"model": adapter or self._model}
        if request.priority:
            fields["priority"] = request.priority
        if request.truncate_to is not None:
            fields["truncate_prompt_tokens"] = request.truncate_to
        if request.max_tokens_per_document is not None:
            fields["max_tokens_per_doc"] = request.max_tokens_per_document
        return await self._calls.score(request, fields)
