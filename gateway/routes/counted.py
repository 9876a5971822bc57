"""Requests that run no model, and count against the limits of their key all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
