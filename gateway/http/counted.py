"""Limits of API keys for requests that have no `Attempts`, such as those that use no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import TypeVar, cast

from litestar.types import ASGIApp

from gateway.http.state import HttpRequest, services_of
from gateway.observe.request_context import current_principal
from gateway.services import Services

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[ASGIApp]])
"""A request handler: a function that receives the request as its first argument."""


def counts(handle: HandlerT) -> HandlerT:
    """A handler whose requests count towards the request limits of their API keys, like a plugin's `Route` with
    `counted`."""

    @wraps(handle)
    async def counting(request: HttpRequest, *args: object, **kwargs: object) -> ASGIApp:
        async with counted(services_of(request)):
            return await handle(request, *args, **kwargs)

    return cast("HandlerT", counting)


@asynccontextmanager
async def counted(services: Services) -> AsyncIterator[None]:
    """A context in which the current request counts towards its key's limits of requests and of concurrent requests.
    Its tokens do not count, because no model reads them. Raises `RateLimited` or `StoreUnavailable`."""
    charge = await services.limiter.admit(current_principal(), prompt=0, output=0)
    try:
        yield
    finally:
        if charge is not None:
            services.limiter.settle(charge, 0)


@contextmanager
def preparing(services: Services) -> Iterator[None]:
    """A context in which the current request is prepared. It is refused on entry if its key has reached a limit, and is
    counted later, when it is admitted. See `Limiter.prepare`. Raises `RateLimited`."""
    preparation = services.limiter.prepare(current_principal())
    try:
        yield
    finally:
        if preparation is not None:
            preparation.end()
