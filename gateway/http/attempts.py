"""The models that may answer a request, as attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.answers.attempts import Attempts
from gateway.http.loading import while_connected
from gateway.http.state import HttpRequest
from gateway.models.model_slot import ModelUse
from gateway.services import Services

PlanT = TypeVar("PlanT")


async def attempts_of(
    request: HttpRequest,
    services: Services,
    model: str | None,
    plan: Callable[[str | None], Awaitable[PlanT]],
    *,
    api: str,
    use: ModelUse = "generates",
    owner: str | None,
    size: int,
) -> Attempts[PlanT]:
    """The attempts to answer a request that names `model`. Until their context is left, they stop waiting for a model
    to load if the client disconnects. See `ModelLookup.candidates` and `Attempts`."""
    names = await services.lookup.candidates(model, api=api, use=use, owner=owner, size=size)
    return Attempts(
        names,
        plan,
        services.lookup,
        services.metrics,
        services.limiter,
        use=use,
        wait=while_connected(request),
    )
