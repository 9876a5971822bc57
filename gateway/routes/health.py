"""/health, /ready and /metrics: for load balancers, orchestrators and Prometheus."""

from __future__ import annotations

import asyncio

from litestar import HttpMethod, get, route
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from gateway.errors import GatewayError, ServerShuttingDown
from gateway.routes.answers import error_answer
from gateway.routes.state import HttpRequest, services_of
from gateway.serving.metrics import CONTENT_TYPE

_GET_OR_HEAD = (HttpMethod.GET, HttpMethod.HEAD)
"""Some monitors ask with HEAD; the server leaves the body out."""


@route("/health", http_method=_GET_OR_HEAD)
async def health(request: HttpRequest) -> ASGIApp:
    """200 while the process lives."""
    return ASGIResponse(body=b'{"status":"ok"}', media_type="application/json")


@route("/ready", http_method=_GET_OR_HEAD)
async def ready(request: HttpRequest) -> ASGIApp:
    """200 while every engine and the store can serve; 503 with the reason of the first that cannot."""
    services = services_of(request)
    checks = [model.engine.health() for model in services.models.values()]
    if services.store is not None:
        checks.append(services.store.health())
    try:
        if services.draining:
            for check in checks:
                check.close()
            raise ServerShuttingDown("The server is shutting down.")
        await asyncio.gather(*checks)
    except GatewayError as error:
        return error_answer(error)
    return ASGIResponse(body=b'{"status":"ready"}', media_type="application/json")


@get("/metrics")
async def metrics(request: HttpRequest) -> ASGIApp:
    """Everything that is counted, in Prometheus' text format."""
    return ASGIResponse(body=services_of(request).metrics.exposition(), media_type=CONTENT_TYPE)
