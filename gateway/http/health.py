"""/health, /ready and /metrics: for load balancers, orchestrators and Prometheus."""

from __future__ import annotations

import asyncio
from itertools import zip_longest

import msgspec
from litestar import get
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from gateway.base.errors import GatewayError, PermissionDenied, ServerShuttingDown
from gateway.http.answers import error_answer
from gateway.http.state import HttpRequest, may_see_details, owner_of, services_of
from gateway.services import Services


class NotReady(GatewayError):
    """503 without details: an engine or the store cannot serve, and the sender may not see which one."""

    status = 503
    type = "service_unavailable_error"
    default_code = "not_ready"


_NOT_READY = NotReady("This server is not ready. An API key with admin = true is told why.")


@get("/health")
async def health(request: HttpRequest) -> ASGIApp:
    """200 while the process is running."""
    return ASGIResponse(body=b'{"status":"ok"}', media_type="application/json")


@get("/ready")
async def ready(request: HttpRequest) -> ASGIApp:
    """200 while the store and the engines can serve; otherwise 503 with the reason of the first one that cannot.

    Engines of models with `required = false` count only if no other engine can serve. Models that are not loaded do not
    count. If there are any, the states of all models are listed. If the server has API keys, reasons and models are
    shown to administrators only.
    """
    services = services_of(request)
    unable: list[str] = []
    try:
        if services.draining:
            raise ServerShuttingDown("The server is shutting down.")
        unable = await _check(services)
    except GatewayError as error:
        detailed = isinstance(error, ServerShuttingDown) or await may_see_details(request)
        return error_answer(error if detailed else _NOT_READY)
    body: dict[str, object] = {"status": "ready"}
    if not await may_see_details(request):
        return ASGIResponse(body=msgspec.json.encode(body), media_type="application/json")
    if unavailable := [*services.unopened, *unable]:
        body["unavailable_models"] = unavailable
    slots = services.slots.slots
    if any(slot.state != "loaded" for slot in slots.values()):
        body["models"] = {name: slot.state for name, slot in slots.items()}
    return ASGIResponse(body=msgspec.json.encode(body), media_type="application/json")


async def _check(services: Services) -> list[str]:
    """The names of models with `required = false` that cannot serve. Raises `GatewayError` if the store or another
    model cannot serve, or if no model can."""
    models = [*services.models.values()]
    checks = [model.engine.health() for model in models]
    if services.store is not None:
        checks.append(services.store.health())
    results = await asyncio.gather(*checks, return_exceptions=True)
    unable: list[str] = []
    for model, result in zip_longest(models, results):
        if isinstance(result, GatewayError) and model is not None and not model.config.required:
            unable.append(model.name)
        elif isinstance(result, BaseException):
            raise result
    if models and len(unable) == len(models):
        raise next(each for each in results if isinstance(each, GatewayError))
    return unable


@get("/metrics")
async def metrics(request: HttpRequest) -> ASGIApp:
    """All metrics, in Prometheus' text format or in OpenMetrics format."""
    services = services_of(request)
    readers = services.config.server.metrics
    if isinstance(readers, list) and owner_of(request) not in readers:
        raise PermissionDenied(
            "This API key may not read the metrics. Its name has to be in metrics under [server]."
        )
    body, content_type = await services.metrics.scrape(request.headers.get("accept", ""))
    # Not as `media_type`, which would add a second charset.
    return ASGIResponse(body=body, headers={"content-type": content_type})
