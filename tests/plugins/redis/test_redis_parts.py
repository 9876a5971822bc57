"""Large parts of responses in Redis: how often they are stored, how long, and that nothing of them is left."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway_redis import RedisConfig, open_redis
from gateway_redis.parts import PartTable
from gateway_redis.store import RedisStore
from gateway_testing.store_part_contract import image_url, seeing
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Open = Callable[..., Any]


@pytest.fixture
def prefix() -> str:
    return f"parts-{uuid.uuid4().hex}"


@pytest.fixture
async def client(redis_process: Any) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_process.url) as client:
        yield client


@pytest.fixture
async def open_store(redis_process: Any, prefix: str) -> AsyncIterator[Open]:
    """Open a store as often as wanted: all share what they store."""
    async with AsyncExitStack() as stack:

        async def open_(**config: Any) -> RedisStore:
            there = RedisConfig(
                url=redis_process.url, connect_timeout=60, timeout=60, prefix=prefix, **config
            )
            return await stack.enter_async_context(open_redis(there))

        yield open_


async def test_a_part_is_stored_once_and_removed_with_its_last_response(
    open_store: Open, client: Redis, prefix: str
) -> None:
    """A response in the background has it in its request and its input, and writes it twice. Nothing is left in the ledger."""
    store = await open_store()
    url = image_url(100_000)
    image = seeing(url)
    last: str | None = None
    made: list[str] = []
    for _ in range(3):
        running = record(
            status="in_progress",
            input_=[image],
            request=url.encode(),
            previous_response_id=last,
        )
        await store.put(running)
        done = record(
            response_id=running.id,
            input_=[image],
            output=[message("assistant", "a cat")],
            previous_response_id=last,
        )
        assert await store.advance(done, expected=("in_progress",))
        made.append(last := done.id)
    [uses] = await client.keys(f"{prefix}:part:*:uses")
    assert await client.zcard(uses) == 3
    stored = [await client.memory_usage(key) for key in await client.keys(f"{prefix}:*")]
    assert 100_000 < sum(stored) < 200_000
    for each in made:
        assert await store.delete(each)

    async def empty() -> bool:
        return not await client.keys(f"{prefix}:*")

    await wait_until_async(empty, "nothing is left")


async def test_a_part_lives_longer_than_each_response_that_has_it(
    open_store: Open, client: Redis, prefix: str
) -> None:
    """Also where another gateway, which does not know the response, continues it much later."""
    one, other = await open_store(ttl=1000.0), await open_store(ttl=1000.0)
    first = record(input_=[seeing(image_url())], owner="ada")
    await one.put(first)
    keys = [*await client.keys(f"{prefix}:part:*"), f"{prefix}:{{{first.id}}}"]
    for key in keys:
        await client.pexpire(key, 50_000)
    second = record(previous_response_id=first.id, owner="ada")
    await other.put(second)
    lives = [await client.pttl(key) for key in keys]
    assert min(lives[:2]) >= lives[2] >= 900_000
    running = record(status="in_progress", input_=[seeing(image_url())], owner="ada")
    await one.put(running)
    assert await client.pttl(f"{prefix}:{{{running.id}}}") == -1
    assert all(
        [await client.pttl(key) > 1_000_000 for key in await client.keys(f"{prefix}:part:*")]
    )


async def test_uses_of_expired_responses_are_given_up_while_others_use_the_part(
    open_store: Open, client: Redis, prefix: str
) -> None:
    """Otherwise an image that comes with every request would never lose a use, and be counted with none of its responses."""
    store = await open_store()
    image = seeing(image_url(100_000))
    total = f"{prefix}:{{ledger}}:total"

    async def put() -> str:
        kept = record(input_=[image], owner="ada")
        await store.put(kept)
        return f"{prefix}:{{{kept.id}}}"

    first, alive, *more = [await put() for _ in range(6)]
    [uses] = await client.keys(f"{prefix}:part:*:uses")
    await client.delete(first, *more)  # as if they had expired
    for use in await client.zrange(uses, 0, -1):
        await client.zadd(uses, {use: 0})
    made = [await put() for _ in range(3)]

    async def left() -> bool:
        found = {use.decode().partition(" ")[0] for use in await client.zrange(uses, 0, -1)}
        return {f"{prefix}:{{{each}}}" for each in found} == {alive, *made}

    await wait_until_async(left, "those that are there remain")
    made.append(await put())
    [part] = await client.keys(f"{prefix}:part:*}}")
    assert f"{prefix}:{{{(await client.hget(part, 'b')).decode()}}}" in made, "it is counted"
    await store._ledger.close()
    assert 100_000 < int(await client.get(total)) < 250_000


async def test_a_response_whose_part_is_lost_is_not_there(
    open_store: Open, client: Redis, prefix: str
) -> None:
    """An incomplete one is never shown."""
    store = await open_store()
    kept = record(input_=[seeing(image_url())], owner="ada")
    await store.put(kept)
    for key in await client.keys(f"{prefix}:part:*"):
        await client.delete(key)
    assert await store.get(kept.id, owner="ada") is None
    assert await store.history(kept.id, owner="ada") is None
    assert await store.delete(kept.id, owner="ada")


async def test_a_response_that_ends_while_it_is_read_is_there(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is read, then it ends and gives up the part that only its request had, and then the parts are read."""
    store = await open_store()
    running = record(status="in_progress", request=image_url().encode(), owner="ada")
    ended = record(response_id=running.id, output=[message("assistant", "a cat")], owner="ada")
    await store.put(running)
    restored = PartTable.restored

    async def ends_first(*arguments: Any) -> Any:
        monkeypatch.setattr(PartTable, "restored", restored)
        assert await store.advance(ended, expected=("in_progress",))
        return await restored(*arguments)

    monkeypatch.setattr(PartTable, "restored", ends_first)
    found = await store.get(running.id, owner="ada")
    assert found is not None
    assert found.response.status == "completed"
