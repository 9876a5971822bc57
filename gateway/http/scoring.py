"""/v1/rerank and /v1/score."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.answers.scoring.answer import (
    ScoringRun,
    prepare_rerank,
    prepare_scores,
    reranked,
    score_list,
)
from gateway.http.attempts import attempts_of
from gateway.http.body import read_body
from gateway.http.pooled import pooled_answer
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.http.trace import trace_headers
from gateway.http.unknown import note_unknown
from gateway.services import Services
from gateway.wire.large_bodies import decode_body
from gateway.wire.scoring import ScoringLimits, decode_rerank_request, decode_score_request


@post(["/v1/rerank", "/v2/rerank", "/rerank"], status_code=200)
async def create_rerank(request: HttpRequest) -> ASGIApp:
    """Order documents by relevance. The paths are vLLM's; Cohere's SDK uses `/v2/rerank`."""
    services = services_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_rerank_request, limits=_limits(services)))
    note_unknown(request, services, "/v1/rerank", decoded.unknown)

    async def make(run: ScoringRun) -> object:
        return await run.answer(partial(reranked, decoded, run.model.name))

    prepare = partial(prepare_rerank, decoded, services)
    return await _answer(request, services, decoded.model, prepare, make, "rerank", len(body))


@post(["/v1/score", "/score"], status_code=200)
async def create_scores(request: HttpRequest) -> ASGIApp:
    """Score pairs of texts, as vLLM does."""
    services = services_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_score_request, limits=_limits(services)))
    note_unknown(request, services, "/v1/score", decoded.unknown)

    async def make(run: ScoringRun) -> object:
        return await run.answer(partial(score_list, run.model.name))

    prepare = partial(prepare_scores, decoded, services)
    return await _answer(request, services, decoded.model, prepare, make, "score", len(body))


async def _answer(
    request: HttpRequest,
    services: Services,
    model: str | None,
    prepare: Callable[..., Awaitable[ScoringRun]],
    make: Callable[[ScoringRun], Awaitable[object]],
    api: str,
    size: int,
) -> ASGIApp:
    headers, owner = trace_headers(request), owner_of(request)

    async def plan(name: str | None) -> ScoringRun:
        return await prepare(trace_headers=headers, model_name=name, owner=owner)

    attempts = await attempts_of(
        request, services, model, plan, api=api, use="reranks", owner=owner, size=size
    )
    return await pooled_answer(attempts, make)


def _limits(services: Services) -> ScoringLimits:
    server = services.config.server
    return ScoringLimits(server.max_rerank_documents, server.max_rerank_bytes)
