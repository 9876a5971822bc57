"""/v1/rerank and /v1/score."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.loop.attempts import Attempts
from gateway.routes.body import read_body
from gateway.routes.loading import loaded
from gateway.routes.pooled import pooled_answer
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import trace_headers
from gateway.routes.unknown import note_unknown
from gateway.runtime.services import Services
from gateway.scoring.answer import (
    ScoringRun,
    prepare_rerank,
    prepare_scores,
    reranked,
    score_list,
)
from gateway.wire.scoring import ScoringLimits, decode_rerank_request, decode_score_request


@post(["/v1/rerank", "/v2/rerank", "/rerank"], status_code=200)
async def create_rerank(request: HttpRequest) -> ASGIApp:
    """Order documents by relevance. The paths are vLLM's; Cohere's SDK uses `/v2/rerank`."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_rerank_request(body, _limits(services))
    note_unknown(request, "/v1/rerank", decoded.unknown)

    async def prepare(model: str | None) -> ScoringRun:
        headers, owner = trace_headers(request), owner_of(request)
        return await prepare_rerank(
            decoded, services, trace_headers=headers, model_name=model, owner=owner
        )

    async def make(run: ScoringRun) -> object:
        return await run.answer(partial(reranked, decoded, run.model.name))

    names = await services.candidates(
        decoded.model, api="rerank", does="reranks", owner=owner_of(request), size=len(body)
    )
    return await pooled_answer(
        Attempts(
            names,
            prepare,
            services.metrics,
            hold=partial(services.loaded, does="reranks"),
            hold_first=partial(loaded, request, does="reranks"),
        ),
        make,
    )


@post(["/v1/score", "/score"], status_code=200)
async def create_scores(request: HttpRequest) -> ASGIApp:
    """Score pairs of texts, as vLLM does."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_score_request(body, _limits(services))
    note_unknown(request, "/v1/score", decoded.unknown)

    async def prepare(model: str | None) -> ScoringRun:
        headers, owner = trace_headers(request), owner_of(request)
        return await prepare_scores(
            decoded, services, trace_headers=headers, model_name=model, owner=owner
        )

    async def make(run: ScoringRun) -> object:
        return await run.answer(partial(score_list, run.model.name))

    names = await services.candidates(
        decoded.model, api="score", does="reranks", owner=owner_of(request), size=len(body)
    )
    return await pooled_answer(
        Attempts(
            names,
            prepare,
            services.metrics,
            hold=partial(services.loaded, does="reranks"),
            hold_first=partial(loaded, request, does="reranks"),
        ),
        make,
    )


def _limits(services: Services) -> ScoringLimits:
    server = services.config.server
    return ScoringLimits(server.max_rerank_documents, server.max_rerank_bytes)
