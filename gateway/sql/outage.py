"""Surviving a database that is away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.errors import StoreUnavailable

T = TypeVar("T")


async def through_outage(
    work: Callable[[], Awaitable[T]], *, seconds: float, every: float = 0.1
) -> T:
    """Run `work`; repeat it while the store is unavailable, for at most `seconds`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            return await work()
        except StoreUnavailable:
            if loop.time() + every >= end:
                raise
            await asyncio.sleep(every)
            every = min(every * 2, 1.0)
