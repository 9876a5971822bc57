"""Clients in front of a full queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.waiting import wait_until_async


async def leave_after_refusals(
    asked: Sequence[asyncio.Task[Any]], refused: Sequence[Any], number: int
) -> None:
    """Wait until `number` of the requests have been `refused`; then the clients of the others, who wait or are served, leave."""
    await wait_until_async(lambda: len(refused) == number)
    admitted = [task for task in asked if not task.done()]
    assert len(admitted) == len(asked) - number
    for task in admitted:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
