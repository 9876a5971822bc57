"""Limits of keys for requests that have no `Attempts`: those that run no model, and others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from gateway.runtime.callers import current_principal
from gateway.runtime.services import Services


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
