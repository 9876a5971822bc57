"""The writer of events on a database that is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.storage.writes import WriteTokens
from gateway_sql.event_writer import SqlEventWriter

pytestmark = pytest.mark.anyio


async def away() -> None:
    raise StoreUnavailable("It is away.")


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
