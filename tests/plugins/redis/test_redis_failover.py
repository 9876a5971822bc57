"""A Redis that becomes a replica: clients that wait for entries are told, and those that write find the new primary."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.base.errors import StoreUnavailable
from gateway_redis import RedisConfig, open_redis
from gateway_testing.store_records import record
from tests.switched_address import switched_address
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


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 20])
async def test_an_old_primary_that_stays_up_as_a_replica_is_left(
    start_redis: Any, at_once: int
) -> None:
    """The connections to it stay open, as those through the address of a managed Redis do."""
    old = start_redis()
    new = start_redis("--replicaof", "127.0.0.1", str(old.port))
    async with switched_address(old.port) as address:
        config = RedisConfig(
            url=f"redis://127.0.0.1:{address.port}/0", connect_timeout=30, timeout=30, outage=0
        )
        async with open_redis(config) as store, Redis.from_url(new.url) as there:
            before = [record() for _ in range(at_once)]
            await asyncio.gather(*map(store.put, before))
            async with asyncio.timeout(60):
                while not await there.exists(f"litegate:{{{before[-1].id}}}"):  # noqa: ASYNC110  # replicated
                    await asyncio.sleep(0.01)
            new.ask("REPLICAOF NO ONE")
            old.ask(f"REPLICAOF 127.0.0.1 {new.port}")
            # Nothing tells the old connections; the server at the address is still the old one, and only read.
            with pytest.raises(StoreUnavailable, match="read only"):
                await store.health()
            address.target = new.port
            await asyncio.sleep(1.1)  # connections are renewed once a second at most
            await store.health()
            after = [record() for _ in range(at_once)]
            await asyncio.gather(*map(store.put, after))
            for kept in (*before, *after):
                assert await store.get(kept.id) is not None
                assert await there.exists(f"litegate:{{{kept.id}}}")


async def test_writes_that_fail_together_all_find_the_new_primary(start_redis: Any) -> None:
    old, new = start_redis(), start_redis()
    async with switched_address(old.port) as address:
        config = RedisConfig(
            url=f"redis://127.0.0.1:{address.port}/0", connect_timeout=30, timeout=30, outage=0
        )
        async with open_redis(config) as store, Redis.from_url(new.url) as there:
            await asyncio.gather(*(store.put(record()) for _ in range(20)))
            address.target = new.port
            old.ask(f"REPLICAOF 127.0.0.1 {new.port}")
            kept = [record() for _ in range(20)]
            await asyncio.gather(*map(store.put, kept))
            for each in kept:
                assert await there.exists(f"litegate:{{{each.id}}}")
