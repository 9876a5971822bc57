"""Writing through an outage of a store when the process ends."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.storage.writes import through_outage

pytestmark = pytest.mark.anyio


async def away() -> None:
    raise StoreUnavailable("It is away.")


async def test_nothing_is_repeated_once_the_process_ends() -> None:
    closing = asyncio.Event()
    waiting = asyncio.create_task(through_outage(away, seconds=3600, closing=closing))
    await asyncio.sleep(0)
    closing.set()
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable):
            await waiting
        with pytest.raises(StoreUnavailable):
            await through_outage(away, seconds=3600, closing=closing)
