"""/v1/embeddings."""

from __future__ import annotations

from litestar import post
from litestar.types import ASGIApp

from gateway.embeddings.answer import prepare_embeddings
from gateway.routes.answers import PlainAnswer, json_answer
from gateway.routes.body import read_body
from gateway.routes.loading import loaded
from gateway.routes.state import HttpRequest, services_of
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
    async with loaded(request, decoded.model, "embeds"):
        run = await prepare_embeddings(
            decoded, services, size=len(body), trace_headers=trace_headers(request)
        )

    async def make() -> ASGIApp:
        made = await run.run()
        run.scope.raise_error()
        return json_answer(made)

    return PlainAnswer(run.scope, make)
