"""Making an answer of the rerank or score API, from its texts to their scores."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET

from gateway.access.engine_priority import engine_priority
from gateway.answers.pooled_run import run_pooled
from gateway.answers.run_scope import RunScope
from gateway.base.errors import EngineError, Unsupported
from gateway.generation.error_params import ScoringParams
from gateway.generation.policies import Policies, policies_for, refused
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    PolicyRefusal,
    ScoreRequest,
    ScoreResult,
    ScoringEngine,
    ScoringInfo,
    TextPair,
)
from gateway.services import Services
from gateway.wire.ids import new_id
from gateway.wire.scoring import (
    RerankAnswer,
    RerankDocument,
    RerankRequest,
    RerankResult,
    Score,
    ScoreList,
    ScoreTextsRequest,
    ScoringParameters,
    ScoringUsage,
)

T = TypeVar("T")


class ScoringRun:
    """A prepared answer. A failure of `answer` or `scores` does not raise; it is `scope.error`. They raise
    `CancelledError` if their task is cancelled."""

    def __init__(
        self,
        request: ScoreRequest,
        model: ServedModel,
        engine: ScoringEngine,
        services: Services,
        params: ScoringParams,
        *,
        api: str,
    ) -> None:
        """Reserves a place in the model's queue. Raises `RateLimited` if the queue is full. `params` translates
        positions in `request` to positions in the client's request. `api` is the short name of the API."""
        self.services = services
        self.scope = RunScope(services, name="a scoring", api=api, subject="The scoring")
        self.scope.reserve(model)
        self.model = model
        self._request = request
        self._engine = engine
        self._params = params

    async def answer(self, make: Callable[[ScoreResult], T]) -> T | None:
        """Return the result of `make` for the scores; None if the request failed."""
        with self.scope:
            return await self._through(make)

    async def scores(self) -> Sequence[float] | None:
        """Return the scores; None if the request failed. Use this or `answer`. A shutdown does not wait for this call;
        it waits for the run that made it."""
        return await self._through(lambda result: result.scores)

    async def _through(self, make: Callable[[ScoreResult], T]) -> T | None:
        async def checked(result: ScoreResult) -> T:
            _check(result, len(self._request.pairs))
            return make(result)

        def ask(trace_headers: Mapping[str, str] | None) -> Awaitable[ScoreResult]:
            request = self._request
            if trace_headers is not None:
                request = msgspec.structs.replace(request, trace_headers=trace_headers)
            return self._engine.score(request)

        return await run_pooled(
            self.scope, model=self.model, ask=ask, make=checked, params=self._params
        )


def _check(result: ScoreResult, wanted: int) -> None:
    if len(result.scores) != wanted:
        raise EngineError(f"The engine gave {len(result.scores)} scores for {wanted} pairs. Retry.")
    if not all(map(math.isfinite, result.scores)):
        raise EngineError("The engine gave a score that is not a number.")


async def prepare_rerank(
    request: RerankRequest,
    services: Services,
    *,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
    owner: str | None = None,
) -> ScoringRun:
    """Prepare an answer by the model `model_name`, by default the model that the request names. Raises `GatewayError`
    for failures that are answered with an HTTP status."""
    pairs = [(request.query, document) for document in request.documents]
    params = ScoringParams(("query", "documents"), (False, True), one_query=True)
    return await _prepare(
        request, pairs, services, params, trace_headers, model_name, owner, api="rerank"
    )


async def prepare_scores(
    request: ScoreTextsRequest,
    services: Services,
    *,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
    owner: str | None = None,
) -> ScoringRun:
    """Like `prepare_rerank`, for the score API."""
    queries, documents = request.queries, request.documents
    if len(queries) == 1:
        queries = queries * len(documents)

    pairs = list(zip(queries, documents, strict=True))
    params = ScoringParams(request.names, request.several, one_query=len(request.queries) == 1)
    return await _prepare(
        request, pairs, services, params, trace_headers, model_name, owner, api="score"
    )


async def _prepare(
    request: ScoringParameters,
    pairs: Sequence[TextPair],
    services: Services,
    params: ScoringParams,
    trace_headers: Mapping[str, str] | None,
    model_name: str | None,
    owner: str | None,
    *,
    api: str,
) -> ScoringRun:
    model, engine = services.lookup.scoring_model(model_name or request.model)
    _check_truncation(request, engine.scoring, model.name)
    policies = policies_for(services.policies, api=api, model=model.name, owner=owner)
    if policies is not None:
        pairs = await _decided(pairs, policies, params)
    asked = ScoreRequest(
        request_id=new_id("score_"),
        pairs=pairs,
        max_tokens_per_document=request.max_tokens_per_doc or None,
        truncate_to=request.truncate_prompt_tokens,
        adapter=model.adapter,
        priority=engine_priority(model.engine, request.priority),
        user=request.user,
        trace_headers=trace_headers,
    )
    return ScoringRun(asked, model, engine, services, params, api=api)


async def _decided(
    pairs: Sequence[TextPair], policies: Policies, params: ScoringParams
) -> Sequence[TextPair]:
    """Return the pairs as the policies changed them. Policies receive each text once. Raises `InvalidRequest` for a
    refusal."""
    distinct = list(dict.fromkeys(text for pair in pairs for text in pair))
    decided = await policies.texts(distinct)
    if isinstance(decided, PolicyRefusal):
        raise refused(decided, params.renamed(("pairs",)))
    changed = dict(zip(distinct, decided, strict=True))
    return [(changed[query], changed[document]) for query, document in pairs]


def _check_truncation(request: ScoringParameters, info: ScoringInfo, model: str) -> None:
    if info.truncates:
        return
    for name, value in (
        ("truncate_prompt_tokens", request.truncate_prompt_tokens),
        ("max_tokens_per_doc", request.max_tokens_per_doc or None),
    ):
        if value is not None:
            raise Unsupported(
                f"The engine of '{model}' does not truncate texts. Leave {name} out, and send shorter ones.",
                param=name,
            )


def reranked(request: RerankRequest, model: str, result: ScoreResult) -> RerankAnswer:
    """Return the answer of the rerank API, with the best document first. Documents with equal scores are in the order
    of the request."""
    scores, documents = result.scores, request.documents
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return RerankAnswer(
        id=new_id("rerank-"),
        model=model,
        results=[
            RerankResult(
                index=index,
                relevance_score=scores[index],
                document=RerankDocument(text=documents[index])
                if request.return_documents
                else UNSET,
            )
            for index in order[: request.top_n or None]
        ],
        usage=_usage(result),
    )


def score_list(model: str, result: ScoreResult) -> ScoreList:
    """Return the answer of the score API."""
    return ScoreList(
        id=new_id("score-"),
        created=int(time.time()),
        model=model,
        data=[Score(index=index, score=score) for index, score in enumerate(result.scores)],
        usage=_usage(result),
    )


def _usage(result: ScoreResult) -> ScoringUsage:
    return ScoringUsage(prompt_tokens=result.prompt_tokens, total_tokens=result.prompt_tokens)
