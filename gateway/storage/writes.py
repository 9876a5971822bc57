"""Writing to a store that may be briefly unavailable."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from gateway.base.errors import StoreUnavailable

T = TypeVar("T")


class WriteTokens:
    """Generates tokens by which a store recognizes a write that is repeated because its answer was lost. Each token
    is unique among all processes."""

    def __init__(self) -> None:
        self.process = secrets.token_hex(8)
        """The common prefix of this object's tokens."""
        self._numbers = itertools.count()

    def next(self) -> str:
        return f"{self.process}:{next(self._numbers)}"


async def through_outage(
    work: Callable[[], Awaitable[T]], *, seconds: float, closing: asyncio.Event | None = None
) -> T:
    """Run `work`, and repeat it while it raises `StoreUnavailable`, for at most `seconds` and until `closing` is
    set."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    pause = 0.1
    while True:
        try:
            return await work()
        except StoreUnavailable:
            if loop.time() + pause >= end or (closing is not None and closing.is_set()):
                raise
            if closing is None:
                await asyncio.sleep(pause)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await closing.wait()
            pause = min(pause * 2, 1.0)
