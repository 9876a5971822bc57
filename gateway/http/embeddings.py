"""/v1/embeddings."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.answers.embeddings.answer import EmbeddingRun, prepare_embeddings
from gateway.http.attempts import attempts_of
from gateway.http.body import read_body
from gateway.http.pooled import pooled_answer
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.http.trace import trace_headers
from gateway.http.unknown import note_unknown
from gateway.wire.embeddings import decode_embeddings_request
from gateway.wire.large_bodies import decode_body


@post("/v1/embeddings", status_code=200)
async def create_embeddings(request: HttpRequest) -> ASGIApp:
    """Create embeddings."""
    services, owner = services_of(request), owner_of(request)
    body = await read_body(request, services)
    limit = services.config.server.max_embedding_inputs
    decoded = await decode_body(body, partial(decode_embeddings_request, max_inputs=limit))
    note_unknown(request, services, "/v1/embeddings", decoded.unknown)
    headers = trace_headers(request)

    async def prepare(model: str | None) -> EmbeddingRun:
        return await prepare_embeddings(
            decoded,
            services,
            size=len(body),
            trace_headers=headers,
            model_name=model,
            owner=owner,
        )

    attempts = await attempts_of(
        request,
        services,
        decoded.model,
        prepare,
        api="embeddings",
        use="embeds",
        owner=owner,
        size=len(body),
    )
    return await pooled_answer(attempts, EmbeddingRun.run)
