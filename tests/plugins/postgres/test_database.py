"""Writes whose callers are cancelled."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from gateway.base.errors import StoreUnavailable
from gateway_postgres.database import PostgresDatabase


class Failing(PostgresDatabase):
    """Fails each write once it may."""

    def __init__(self) -> None:
        self._writes = set()
        self.may_fail = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def _run(self, operation: Any, **options: Any) -> Any:
        self.has_begun.set()
        await self.may_fail.wait()
        raise StoreUnavailable("The server is away.")


@pytest.mark.anyio
async def test_a_write_that_fails_after_its_caller_was_cancelled_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = Failing()
    caller = asyncio.create_task(database.write(lambda: iter(())))  # type: ignore[arg-type]  # it is not run
    await database.has_begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    [write] = database._writes
    with caplog.at_level(logging.WARNING):
        database.may_fail.set()
        await asyncio.wait([write])
        await asyncio.sleep(0)  # its callbacks
        del write
        gc.collect()
    assert [each.getMessage() for each in caplog.records] == [
        "a write failed after its request had been cancelled: The server is away."
    ]
