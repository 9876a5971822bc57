"""What the Redis store forgets, and what it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.plugins.protocols import CompletionPage
from gateway.wire.response import Conversation
from gateway_redis import RedisConfig, open_redis
from gateway_redis.store import RedisStore
from gateway_testing.store_completion_contract import completion
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Open = Callable[..., Any]


@pytest.fixture
async def client(redis_process) -> AsyncIterator[Redis]:
    """Redis itself, empty."""
    async with Redis.from_url(redis_process.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def open_store(redis_process, client) -> AsyncIterator[Open]:
    """Open a store of some configuration; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_(**config: Any) -> RedisStore:
            return await stack.enter_async_context(
                open_redis(
                    RedisConfig(url=redis_process.url, connect_timeout=60, timeout=60, **config)
                )
            )

        yield open_


async def all_events(store: RedisStore, response_id: str, after: int = -1) -> list[bytes]:
    async with aclosing(store.read_events(response_id, after=after)) as log:
        return [event async for batch in log for event in batch]


async def stored_keys(client: Redis) -> set[bytes]:
    """All keys but those of the ledger, which is empty only once nothing is stored."""
    return {key for key in await client.keys() if not key.startswith(b"litegate:{ledger}")}


async def wait_until_written(client: Redis, number: int) -> None:
    """Wait until Redis has that many keys, but for those of the ledger."""

    async def written() -> bool:
        return len(await stored_keys(client)) == number

    await wait_until_async(written, f"Redis has {number} keys")


async def emptied(client: Redis) -> None:
    """Wait until Redis has no key at all."""

    async def empty() -> bool:
        return not await client.dbsize()

    await wait_until_async(empty, "Redis is empty")


async def test_what_nobody_used_is_forgotten_as_a_whole(open_store: Open, client: Redis) -> None:
    store = await open_store(ttl=6.0)
    done = record()
    await store.put(record(response_id=done.id, status="in_progress", streamed=True))
    await store.append_events(done.id, [b"0"])
    assert await store.advance(done, expected=("in_progress",))
    await store.append_events(done.id, [b"1"], last=True)
    await store.put_conversation(Conversation(id="conv_1", created_at=1))
    await store.append_items("conv_1", [message("user", "x")])
    assert await all_events(store, done.id) == [b"0", b"1"]
    await asyncio.sleep(6.1)
    assert await store.get(done.id) is None
    assert await store.history(done.id) is None
    assert await store.count_events(done.id) == 0
    assert await all_events(store, done.id) == []
    assert await store.get_conversation("conv_1") is None
    assert await store.list_items("conv_1") is None
    assert not await stored_keys(client)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_what_is_running_stays(open_store: Open, status: Any) -> None:
    store = await open_store(ttl=0.1, max_responses=1)
    running = record(status=status, streamed=True)
    await store.put(running)
    await store.append_events(running.id, [b"0"])
    for _ in range(5):
        await store.put(record())
    await asyncio.sleep(0.3)
    assert await store.get(running.id) is not None
    assert await store.count_events(running.id) == 1


async def test_the_oldest_go_first(open_store: Open, client: Redis) -> None:
    store = await open_store(max_responses=10)
    ids = []
    for _ in range(30):
        each = record(output=[message("assistant", "x")])
        ids.append(each.id)
        await store.put(each)
        await store.append_events(each.id, [b"0"], last=True)
    # The record, its log and two items each.
    await wait_until_written(client, 10 * 4)
    kept = [each for each in ids if await store.get(each) is not None]
    assert kept == ids[-10:]


async def test_deletion_leaves_nothing(open_store: Open, client: Redis) -> None:
    """Neither of a chain that is deleted from its root on, nor of one deleted from its end on."""
    store = await open_store()
    for order in (1, -1):
        await client.flushall()
        chain: list[str] = []
        for _ in range(5):
            each = record(
                previous_response_id=chain[-1] if chain else None,
                output=[message("assistant", "secret")],
            )
            await store.put(each)
            chain.append(each.id)
        await asyncio.sleep(0.1)
        for each_id in chain[::order]:
            assert await store.delete(each_id)
        await emptied(client)


async def test_a_branch_keeps_what_it_needs_and_no_more(open_store: Open, client: Redis) -> None:
    store = await open_store()
    root, other = record(output=[message("assistant", "a")]), record()
    left, right = (record(previous_response_id=root.id) for _ in range(2))
    for each in (root, other, left, right):
        await store.put(each)
    assert await store.delete(root.id)
    assert await store.delete(left.id)
    history = await store.history(right.id)
    assert history is not None
    assert len(history) == 3
    assert await store.delete(right.id)
    assert await client.keys(f"litegate:{{{root.id}}}*") == []


async def test_a_form_of_another_version_is_a_miss(
    open_store: Open, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store()
    kept = record()
    await store.put(kept)
    key = f"litegate:{{{kept.id}}}"
    for broken in (b"\x02new", b"\x01\xc1", b""):
        await client.hset(key, "m", broken)
        with caplog.at_level(logging.WARNING):
            assert await store.get(kept.id) is None
        assert kept.id in caplog.text
        caplog.clear()


async def test_after_the_end_comes_only_the_last_of_the_log(open_store: Open) -> None:
    """An owner that is not dead but slow writes nothing into what somebody else has ended."""
    slow, heir = await open_store(), await open_store()
    running = record(status="in_progress", streamed=True)
    await slow.put(running)
    await slow.append_events(running.id, [b"0"])
    assert await heir.advance(
        record(response_id=running.id, status="failed", streamed=True), expected=("in_progress",)
    )
    await slow.append_events(running.id, [b"1"])
    await heir.append_events(running.id, [b"end"], last=True)
    await slow.append_events(running.id, [b"2"], last=True)
    assert await all_events(slow, running.id) == [b"0", b"end"]


async def test_an_end_without_its_log_is_an_orphan(open_store: Open) -> None:
    """Its owner died between the two."""
    store = await open_store()
    for streamed in (True, False):
        kept = record(status="in_progress", streamed=streamed)
        await store.put(kept)
        await store.lease("dead", [kept.id], seconds=0.01)
        await store.advance(
            record(response_id=kept.id, streamed=streamed), expected=("in_progress",)
        )
        await asyncio.sleep(0.05)
        orphans = await store.take_orphans("heir", seconds=60)
        assert [each.id for each in orphans] == ([kept.id] if streamed else [])
        await store.append_events(kept.id, [b"end"], last=True)
        await store.release("heir", kept.id)
        assert await store.take_orphans("other", seconds=60) == []


async def test_stores_share_all_but_for_the_prefix(open_store: Open) -> None:
    one, same, apart = await open_store(), await open_store(), await open_store(prefix="other")
    kept = record(status="in_progress", streamed=True)
    await one.put(kept)
    following = asyncio.create_task(all_events(same, kept.id))
    await asyncio.sleep(0.05)
    for number in range(20):
        await one.append_events(kept.id, [b"%d" % number], last=number == 19)
    async with asyncio.timeout(60):
        assert await following == [b"%d" % number for number in range(20)]
    assert await same.get(kept.id) is not None
    assert await apart.get(kept.id) is None


async def test_a_thousand_readers_follow(open_store: Open) -> None:
    writer, other = await open_store(), await open_store()
    kept = [record(status="in_progress", streamed=True) for _ in range(500)]
    await asyncio.gather(*(writer.put(each) for each in kept))
    readers = [asyncio.create_task(all_events(other, each.id)) for each in kept * 2]
    for number in range(5):
        await asyncio.gather(
            *(writer.append_events(each.id, [b"%d" % number], last=number == 4) for each in kept)
        )
    async with asyncio.timeout(60):
        for reader in readers:
            assert await reader == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_log_that_vanishes_ends_its_readers(
    open_store: Open, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Redis is short of memory and may evict."""
    monkeypatch.setattr("gateway_redis.follower.BLOCK", 0.2)
    store = await open_store()
    kept = record(status="in_progress", streamed=True)
    await store.put(kept)
    await store.append_events(kept.id, [b"0"])
    async with asyncio.timeout(60), aclosing(store.read_events(kept.id)) as log:
        assert list(await anext(log)) == [b"0"]
        rest = asyncio.ensure_future(anext(log, None))
        await client.flushall()
        assert await rest is None


async def test_memory_is_bounded(open_store: Open, client: Redis) -> None:
    """Many more responses than are kept take no more than those that are."""
    store = await open_store(max_responses=500, ttl=3600)

    async def used() -> int:
        info = await client.info("memory")
        return int(info["used_memory"])

    async def run(count: int) -> None:
        for _ in range(count // 100):
            await asyncio.gather(*(_one_response(store) for _ in range(100)))
        # The record, its log and two items each.
        await wait_until_written(client, 500 * 4)

    async def is_small() -> bool:
        return await used() < first * 1.2

    await run(1000)
    first = await used()
    await run(3000)
    await wait_until_async(is_small, "Redis frees in the background")


async def _one_response(store: RedisStore) -> None:
    kept = record(status="in_progress", streamed=True)
    await store.put(kept)
    await store.append_events(kept.id, [b"x" * 200] * 5)
    output = [message("assistant", "x" * 1000)]
    done = record(response_id=kept.id, streamed=True, input_=kept.input, output=output)
    assert await store.advance(done, expected=("in_progress",))
    await store.append_events(kept.id, [b"y"], last=True)


async def test_chat_completions_are_forgotten_after_their_time(
    open_store: Open, client: Redis
) -> None:
    store = await open_store(ttl=12.0)
    kept = completion(owner="ada")
    await store.put_completion(kept)
    await asyncio.sleep(4)
    assert await store.update_completion(kept.id, {"a": "b"}, owner="ada") is not None
    page = await store.list_completions(owner="ada")
    assert page is not None
    assert [each.id for each in page.completions] == [kept.id]
    await asyncio.sleep(8.1)
    assert await store.get_completion(kept.id, owner="ada") is None, "an update adds no time"
    assert await store.list_completions(owner="ada") == CompletionPage(completions=[], has_more=False)  # fmt: skip
    assert not await stored_keys(client)


async def test_the_oldest_chat_completions_go_first(open_store: Open, client: Redis) -> None:
    store = await open_store(max_completions=5)
    made = [completion(owner=f"owner-{number % 2}") for number in range(20)]
    for each in made:
        await store.put_completion(each)
    await wait_until_written(client, 5 + 2)
    kept = 0
    for owner in ("owner-0", "owner-1"):
        page = await store.list_completions(owner=owner)
        assert page is not None
        assert not page.has_more
        listed = [each.id for each in page.completions]
        assert listed == [each.id for each in made if each.owner == owner][-len(listed) :]
        assert len(listed) >= 2
        kept += len(listed)
    assert kept == 5


async def test_completions_are_shared_by_gateways_of_one_prefix(open_store: Open) -> None:
    one, other, stranger = await open_store(), await open_store(), await open_store(prefix="else")
    kept = completion()
    await one.put_completion(kept)
    found = await other.get_completion(kept.id)
    assert found is not None
    assert found.id == kept.id
    assert await stranger.get_completion(kept.id) is None
