"""Writing to a store that may be away for a moment, and reporting the outcome of events that are written in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gateway.errors import StoreUnavailable
from gateway.protocols import Notification

T = TypeVar("T")

logger = logging.getLogger("gateway.stores")


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


def outcome_future() -> tuple[asyncio.Future[bool | StoreUnavailable], Notification]:
    """A future for the outcome of an append, and the callback that sets it unless it was cancelled."""
    coming: asyncio.Future[bool | StoreUnavailable] = asyncio.get_running_loop().create_future()

    def set_outcome(outcome: bool | StoreUnavailable) -> None:
        if not coming.done():
            coming.set_result(outcome)

    return coming, set_outcome


def notify_all(
    response_id: str, callbacks: Sequence[Notification], outcome: bool | StoreUnavailable
) -> None:
    """Call the callbacks of appends to one log with their outcome. What they raise is logged."""
    for notify in callbacks:
        try:
            notify(outcome)
        except Exception:
            # A failing callback must not stop the writing of other logs.
            logger.exception("the outcome of events of %s could not be passed on", response_id)
