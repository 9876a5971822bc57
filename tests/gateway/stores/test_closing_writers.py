"""Writers of events whose store is away when the process ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.sql.event_writer import SqlEventWriter
from gateway.stores.writes import WriteTokens, through_outage

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


async def test_a_database_that_is_away_is_not_waited_for() -> None:
    class Database:
        async def write(self, operation: Any) -> None:
            await away()

    database: Any = Database()
    follower: Any = None
    writer = SqlEventWriter(database, follower, WriteTokens(), outage=3600)
    append = asyncio.create_task(writer.append("resp_1", [b"0"], last=True, attempt=0))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await writer.close()
    with pytest.raises(StoreUnavailable):
        await append
