"""Limits of keys for requests that have no `Attempts`: those that run no model, and others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import TypeVar, cast

from litestar.types import ASGIApp

from gateway.routes.state import HttpRequest, services_of
from gateway.runtime.callers import current_principal
from gateway.runtime.services import Services

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[ASGIApp]])
"""A function that answers a request, its first argument."""


def counts(handle: HandlerT) -> HandlerT:
    """A handler each of whose requests is one of the requests of its key, as those of a plugin's `Route` with `counted`."""

    @wraps(handle)
    async def counting(request: HttpRequest, *args: object, **kwargs: object) -> ASGIApp:
        async with counted(services_of(request)):
            return await handle(request, *args, **kwargs)

    return cast("HandlerT", counting)


@asynccontextmanager
async def counted(services: Services) -> AsyncIterator[None]:
    """Within the context, the current request is one of the requests of its key, those that run at the same time included. Its
    tokens, which no model reads, do not count. Raises `RateLimited` or `StoreUnavailable`."""
    charge = await services.limiter.admit(current_principal(), prompt=0, output=0)
    try:
        yield
    finally:
        if charge is not None:
            services.limiter.settle(charge, 0)


@contextmanager
def preparing(services: Services) -> Iterator[None]:
    """Within the context, the current request is prepared: it is refused before that if its key is at its limit, and counted later,
    when it is admitted. See `Limiter.prepare`. Raises `RateLimited`."""
    preparation = services.limiter.prepare(current_principal())
    try:
        yield
    finally:
        if preparation is not None:
            preparation.end()
