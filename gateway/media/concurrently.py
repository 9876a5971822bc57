"""Reading the parts of one request concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

PartT = TypeVar("PartT")

_AT_ONCE: Final = 4
"""Maximum number of parts of one request that are read concurrently."""


async def for_each(parts: Iterable[PartT], read: Callable[[PartT], Awaitable[None]]) -> None:
    """Call `read` for each part, up to four concurrently. The first failure cancels the others."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(part: PartT) -> None:
        async with slots:
            await read(part)

    tasks = [asyncio.ensure_future(one(part)) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
