"""/v1/embeddings."""

from __future__ import annotations

from litestar import post
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.embeddings.answer import EmbeddingRun, prepare_embeddings
from gateway.routes.answers import error_answer, json_answer, while_connected
from gateway.routes.body import read_body
from gateway.routes.state import HttpRequest, services_of
from gateway.routes.trace import trace_headers
from gateway.wire.embeddings import decode_embeddings_request


@post("/v1/embeddings", status_code=200)
async def create_embeddings(request: HttpRequest) -> ASGIApp:
    """The vectors of texts."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_embeddings_request(
        body, max_inputs=services.config.server.max_embedding_inputs
    )
    if decoded.unknown:
        services.metrics.unknown_parameters("/v1/embeddings")
    run = await prepare_embeddings(
        decoded, services, size=len(body), trace_headers=trace_headers(request)
    )
    return EmbeddingAnswer(run)


class EmbeddingAnswer:
    """A run's answer as one JSON body; an error's envelope and status where it failed. A client that leaves aborts it."""

    def __init__(self, run: EmbeddingRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            made = await self._run.run()
            error = self._run.error
            body = json_answer(made) if error is None else error_answer(error)
            await body(scope, receive, send)

        try:
            await while_connected(receive, answer())
        finally:
            self._run.abandon()
