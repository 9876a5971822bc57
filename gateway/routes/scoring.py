"""/v1/rerank and /v1/score."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.routes.answers import PlainAnswer, json_answer
from gateway.routes.body import read_body
from gateway.routes.loading import loaded
from gateway.routes.state import HttpRequest, services_of
from gateway.routes.trace import trace_headers
from gateway.routes.unknown import note_unknown
from gateway.runtime.services import Services
from gateway.scoring.answer import prepare_rerank, prepare_scores, reranked, score_list
from gateway.wire.scoring import ScoringLimits, decode_rerank_request, decode_score_request


@post(["/v1/rerank", "/v2/rerank", "/rerank"], status_code=200)
async def create_rerank(request: HttpRequest) -> ASGIApp:
    """Order documents by relevance. The paths are vLLM's; Cohere's SDK uses `/v2/rerank`."""
    services = services_of(request)
    decoded = decode_rerank_request(await read_body(request), _limits(services))
    note_unknown(request, "/v1/rerank", decoded.unknown)
    async with loaded(request, decoded.model, "reranks"):
        run = prepare_rerank(decoded, services, trace_headers=trace_headers(request))

    async def make() -> ASGIApp:
        made = await run.answer(partial(reranked, decoded, run.model.name))
        run.scope.raise_error()
        return json_answer(made)

    return PlainAnswer(run.scope, make)


@post(["/v1/score", "/score"], status_code=200)
async def create_scores(request: HttpRequest) -> ASGIApp:
    """Score pairs of texts, as vLLM does."""
    services = services_of(request)
    decoded = decode_score_request(await read_body(request), _limits(services))
    note_unknown(request, "/v1/score", decoded.unknown)
    async with loaded(request, decoded.model, "reranks"):
        run = prepare_scores(decoded, services, trace_headers=trace_headers(request))

    async def make() -> ASGIApp:
        made = await run.answer(partial(score_list, run.model.name))
        run.scope.raise_error()
        return json_answer(made)

    return PlainAnswer(run.scope, make)


def _limits(services: Services) -> ScoringLimits:
    server = services.config.server
    return ScoringLimits(server.max_rerank_documents, server.max_rerank_bytes)
