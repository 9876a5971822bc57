"""/v1/embeddings."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.embeddings.answer import EmbeddingRun, prepare_embeddings
from gateway.loop.attempts import Attempts
from gateway.routes.body import read_body
from gateway.routes.loading import loaded
from gateway.routes.pooled import pooled_answer
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import trace_headers
from gateway.routes.unknown import note_unknown
from gateway.wire.embeddings import decode_embeddings_request


@post("/v1/embeddings", status_code=200)
async def create_embeddings(request: HttpRequest) -> ASGIApp:
    """Create embeddings."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_embeddings_request(
        body, max_inputs=services.config.server.max_embedding_inputs
    )
    note_unknown(request, "/v1/embeddings", decoded.unknown)

    async def prepare(model: str | None) -> EmbeddingRun:
        return await prepare_embeddings(
            decoded,
            services,
            size=len(body),
            trace_headers=trace_headers(request),
            model_name=model,
            owner=owner_of(request),
        )

    names = await services.candidates(
        decoded.model, api="embeddings", does="embeds", owner=owner_of(request), size=len(body)
    )
    return await pooled_answer(
        Attempts(
            names,
            prepare,
            services.metrics,
            hold=partial(services.loaded, does="embeds"),
            hold_first=partial(loaded, request, does="embeds"),
        ),
        EmbeddingRun.run,
    )
