"""What a Redis tells clients that wait when it becomes a replica: their read has ended with an error."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.testing.store_records import record
from gateway_redis import RedisConfig, open_redis
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


async def unblocked(client: Any, each: Any) -> bool:
    """Whether a client waited for entries. It no longer does."""
    return each["cmd"] == "xread" and await client.client_unblock(int(each["id"]), error=True)


async def test_who_follows_a_log_of_another_gateway_goes_on(redis_process: Any) -> None:
    config = RedisConfig(url=redis_process.url, prefix=uuid.uuid4().hex)
    made = record(status="in_progress", streamed=True)
    read: list[bytes] = []
    async with open_redis(config) as writing, open_redis(config) as reading:
        await writing.put(made)
        assert await writing.append_events(made.id, [b"1"], last=False)

        async def follow() -> None:
            async with aclosing(reading.read_events(made.id)) as log:
                async for events in log:
                    read.extend(events)

        following = asyncio.create_task(follow())
        await wait_until_async(lambda: read == [b"1"])
        async with asyncio.timeout(60), Redis.from_url(redis_process.url) as client:
            while not any([await unblocked(client, each) for each in await client.client_list()]):
                pass
        assert await writing.append_events(made.id, [b"2"], last=True)
        await wait_until_async(following.done)
        await following
    assert read == [b"1", b"2"]
