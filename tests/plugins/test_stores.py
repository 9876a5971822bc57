"""All stores: the contract; what several gateways with one store see; what is kept; bounds and times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from gateway.answers.responses.appending import add_items
from gateway.plugins.protocols import LimitCounters, ResponseStore, UsageCount, UsageCounters
from gateway.wire.items import Message
from gateway.wire.response import Conversation
from gateway_memory import MemoryConfig, open_memory
from gateway_postgres import PostgresConfig, open_postgres
from gateway_redis import RedisConfig, open_redis
from gateway_sql import Statement
from gateway_sqlite import SqliteConfig, open_sqlite
from gateway_testing import (
    LimitCountersContract,
    ResponseStoreContract,
    UsageCountersContract,
    check_plugin,
)
from gateway_testing.closing_contract import Reopen
from gateway_testing.store_completion_contract import completion
from gateway_testing.store_lasting_contract import LastingContract
from gateway_testing.store_part_contract import image_url, seeing
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Open: TypeAlias = Callable[..., Awaitable[ResponseStore]]
SHARED = ["sqlite", "redis", "postgres"]
"""Stores that several gateways share, and that keep what they have when a gateway stops."""


@asynccontextmanager
async def opened(
    kind: str, request: pytest.FixtureRequest, place: Path, **settings: Any
) -> AsyncIterator[ResponseStore]:
    """A store of that kind. Those of one test with the same `place` share what they store."""
    match kind:
        case "memory":
            async with open_memory(MemoryConfig(**settings)) as memory:
                yield memory
        case "sqlite":
            async with open_sqlite(
                SqliteConfig(path=str(place / "store.sqlite"), **settings)
            ) as it:
                yield it
        case "redis" | "redis-cluster":
            if kind == "redis":
                url = request.getfixturevalue("redis_process").url
            else:
                url = request.getfixturevalue("redis_cluster")
            # A name of the test's own, since all tests use one Redis.
            config = RedisConfig(
                url=url, connect_timeout=60, timeout=60, prefix=f"test-{place.name}", **settings
            )
            async with open_redis(config) as redis:
                yield redis
        case "postgres":
            url = request.getfixturevalue("postgres_process").url
            schema = f"test_{place.name}".replace("-", "_")
            there = PostgresConfig(
                url=url, connect_timeout=60, timeout=60, schema=schema, **settings
            )
            async with open_postgres(there) as postgres:
                yield postgres
        case _:
            raise AssertionError(kind)


class TestStore(ResponseStoreContract):
    many = 2000

    @pytest.fixture(scope="class", params=["memory", "redis-cluster", *SHARED])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[ResponseStore]:
        place = tmp_path_factory.mktemp(request.param)
        async with opened(request.param, request, place) as store:
            yield store


class TestLasting(LastingContract):
    """What is kept when a store is closed, and the bounds; the rest of the kit uses one open store."""

    @pytest.fixture(params=SHARED)
    def kind(self, request: pytest.FixtureRequest) -> str:
        kind: str = request.param
        return kind

    @pytest.fixture
    def reopen(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
        return lambda: opened(kind, request, tmp_path)

    @pytest.fixture
    def open_bounded(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        return lambda most: opened(kind, request, tmp_path, max_responses=most)


class TestLimitCounters(LimitCountersContract):
    @pytest.fixture(params=["memory", "redis-cluster", *SHARED])
    async def limits_store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[LimitCounters]:
        async with opened(request.param, request, tmp_path) as store:
            assert isinstance(store, LimitCounters)
            yield store


class TestUsageCounters(UsageCountersContract):
    @pytest.fixture(params=["memory", "redis-cluster", *SHARED])
    async def usage_store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[UsageCounters]:
        async with opened(request.param, request, tmp_path) as store:
            assert isinstance(store, UsageCounters)
            yield store


@pytest.fixture(params=["sqlite", "postgres"])
async def sql_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with opened(request.param, request, tmp_path) as store:
        yield store


async def test_days_are_forgotten_after_400(sql_store: Any) -> None:
    today = int(time.time() // 86_400)
    days = [today - ago for ago in (1000, 420, 400, 399, 0)]
    counts = [UsageCount(bucket=day, api="chat", principal="ada", model="m", requests=1) for day in days]  # fmt: skip
    await sql_store.add_usage("old", counts)
    await sql_store._upkeep.expire()  # no other door
    found = await sql_store.read_usage(0, today)
    assert sorted(each.bucket for each in found) == sorted(days[2:])


async def test_a_batch_is_known_for_an_hour(
    sql_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = int(time.time() // 86_400)
    count = UsageCount(bucket=today, api="chat", principal="ada", model="m", requests=1)
    database, begin = sql_store._database, sql_store._database.now()
    await sql_store.add_usage("sent again", [count])
    for passed, requests in ((3600, 1), (8000, 2)):
        monkeypatch.setattr(database, "now", lambda passed=passed: begin + passed)
        await sql_store._upkeep.expire()
        await sql_store.add_usage("sent again", [count])
        [found] = await sql_store.read_usage(today, today)
        assert found.requests == requests


async def test_numbers_that_an_engine_made_up_do_not_stop_the_counting(sql_store: Any) -> None:
    today = int(time.time() // 86_400)
    for tokens in (10**30, -(10**30), 2**63):
        count = UsageCount(
            bucket=today, api="chat", principal="ada", model="m", requests=1, input_tokens=tokens
        )
        await sql_store.add_usage(f"batch {tokens}", [count])
    [found] = await sql_store.read_usage(today, today)
    assert found.requests == 3


async def test_batches_in_any_order_do_not_wait_for_each_other(open_store: Open) -> None:
    """Two gateways that lock the same rows in different orders would."""
    one, other = [await open_store() for _ in range(2)]
    assert isinstance(one, UsageCounters)
    assert isinstance(other, UsageCounters)
    today = int(time.time() // 86_400)
    counts = [
        UsageCount(bucket=today, api="chat", principal=f"key {number}", model="m", requests=1)
        for number in range(50)
    ]
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(one.add_usage(f"one {number}", counts) for number in range(20)),
            *(other.add_usage(f"other {number}", counts[::-1]) for number in range(20)),
        )
    found = await one.read_usage(today, today)
    assert [each.requests for each in found] == [40] * 50


@pytest.mark.parametrize("name", ["memory", *SHARED])
def test_it_is_an_installed_plugin(name: str) -> None:
    assert check_plugin(name).offers == [f"store {name}"]


@pytest.fixture(params=SHARED)
async def open_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Open]:
    """Open a store as often as wanted: all share what they store."""
    place = tmp_path_factory.mktemp("shared")
    async with AsyncExitStack() as stack:

        async def open_(**settings: Any) -> ResponseStore:
            return await stack.enter_async_context(
                opened(request.param, request, place, **settings)
            )

        yield open_


async def all_events(store: ResponseStore, response_id: str, after: int = -1) -> list[bytes]:
    async with aclosing(store.read_events(response_id, after=after)) as log:
        return [event async for batch in log for event in batch]


async def test_one_gateway_follows_what_another_writes(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    kept = [record(status="in_progress", streamed=True) for _ in range(20)]
    for each in kept:
        await one.put(each)
    following = [asyncio.create_task(all_events(other, each.id)) for each in kept * 3]
    for number in range(20):
        await asyncio.gather(
            *(one.append_events(each.id, [b"%d" % number], last=number == 19) for each in kept)
        )
    async with asyncio.timeout(60):
        for each in following:
            assert await each == [b"%d" % number for number in range(20)]


async def test_deleting_ends_the_readers_elsewhere(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    kept = record(status="in_progress", streamed=True)
    await one.put(kept)
    await one.append_events(kept.id, [b"0"])
    async with asyncio.timeout(60), aclosing(other.read_events(kept.id)) as log:
        assert list(await anext(log)) == [b"0"]
        rest = asyncio.ensure_future(anext(log, None))
        await asyncio.sleep(0.05)
        assert await one.delete(kept.id)
        assert await rest is None


async def test_a_request_to_cancel_arrives_elsewhere(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    async with asyncio.timeout(60), aclosing(other.cancel_requests()) as requests:
        first = asyncio.ensure_future(anext(requests))
        while not first.done():
            # The reader hears what is asked for after it began, and nobody knows when that was.
            await one.request_cancel("resp_first")
            await asyncio.sleep(0.02)
        assert await first == "resp_first"
        await one.request_cancel("resp_second")
        async for each in requests:
            if each == "resp_second":
                break


async def test_an_orphan_is_taken_by_one_gateway(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    left = [record(status="in_progress", owner="ada", request=b"{}") for _ in range(20)]
    for each in left:
        await stores[0].put(each)
    await stores[0].lease("dead", [each.id for each in left], seconds=0.01)
    await asyncio.sleep(0.1)
    taken = await asyncio.gather(
        *(store.take_orphans(f"heir-{number}", seconds=60) for number, store in enumerate(stores))
    )
    ids = [each.id for some in taken for each in some]
    assert sorted(ids) == sorted(each.id for each in left)


async def test_a_slow_owner_writes_nothing_into_what_another_has_ended(open_store: Open) -> None:
    slow, heir = await open_store(), await open_store()
    running = record(status="in_progress", streamed=True)
    await slow.put(running)
    await slow.append_events(running.id, [b"0"])
    failed = record(response_id=running.id, status="failed", streamed=True)
    assert await heir.advance(failed, expected=("in_progress",))
    await slow.append_events(running.id, [b"1"])
    await heir.append_events(running.id, [b"end"], last=True)
    await slow.append_events(running.id, [b"2"], last=True)
    assert await all_events(slow, running.id) == [b"0", b"end"]


async def test_one_of_all_gateways_claims_a_value(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    held = await asyncio.gather(
        *(
            store.compare_and_set("claim", b"%d" % number, expected=None, seconds=60)
            for number, store in enumerate(stores * 10)
        )
    )
    assert len(set(held)) == 1


async def test_a_conversation_that_all_extend_at_once_has_everything(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    await stores[0].put_conversation(Conversation(id="conv_1", created_at=1))
    await asyncio.gather(
        *(
            store.append_items("conv_1", [message("user", "x", item_id=f"msg_{at}_{number}")])
            for at, store in enumerate(stores)
            for number in range(20)
        )
    )
    page = await stores[1].list_items("conv_1")
    assert page is not None
    assert len({item.id for item in page.items}) == 60


@pytest.mark.parametrize("kind", ["memory", "redis-cluster", *SHARED])
async def test_two_that_bring_one_id_at_once_both_keep_their_items(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Also if they repeat what they did, as another process does for a background response whose own has died."""
    async with opened(kind, request, tmp_path) as store:
        await store.put_conversation(Conversation(id="conv_1", created_at=1))

        async def add(number: int) -> list[str]:
            text = "same" if number > 2 else str(number)
            items = [message("user", text, item_id="msg_x"), message("assistant", f"to {number}")]
            items[1] = msgspec.structs.replace(items[1], id=f"msg_{number}")
            kept = await add_items(
                store, "conv_1", items, owner=None, bounds=None, adder=f"resp_{number}"
            )
            assert kept is not None
            return [each.id for each in kept]

        ids = await asyncio.gather(*map(add, range(5)))
        assert await asyncio.gather(*map(add, range(5))) == ids
        page = await store.list_items("conv_1")
        assert page is not None
        texts = [each.text for each in page.items if isinstance(each, Message)]
        assert texts.count("same") in {1, 2}, "one item, or two where another item had its id first"
        assert sorted({*texts} - {"same"}) == sorted(
            ["0", "1", "2", *(f"to {number}" for number in range(5))]
        )
        assert len(texts) == 8 + texts.count("same")
        for number in range(5):
            assert texts.index(f"to {number}") > texts.index(str(number) if number < 3 else "same")
        assert await add_items(store, "conv_2", [], owner=None, bounds=None) is None


@pytest.mark.parametrize("kind", SHARED)
async def test_it_keeps_what_it_has_when_the_gateway_stops(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = record(owner="ada", output=[message("assistant", "kept")])
    running = record(status="in_progress", streamed=True)
    chat = completion(owner="ada")
    async with opened(kind, request, tmp_path) as store:
        await store.put(root)
        await store.put(record(response_id="resp_child", owner="ada", previous_response_id=root.id))
        await store.put(running)
        await store.append_events(running.id, [b"0", b"1"])
        await store.lease("first", [running.id], seconds=0.01)
        await store.put_conversation(Conversation(id="conv_1", created_at=1))
        await store.append_items("conv_1", [message("user", "x")])
        await store.put_completion(chat)
        assert await store.compare_and_set("v", b"1", expected=None, seconds=600) == b"1"
    async with opened(kind, request, tmp_path) as store:
        history = await store.history("resp_child", owner="ada")
        assert history is not None
        assert len(history) == 3
        assert await store.count_events(running.id) == 2
        assert await store.append_events(running.id, [b"2"], last=True)
        assert await all_events(store, running.id) == [b"0", b"1", b"2"]
        await asyncio.sleep(0.1)
        assert [each.id for each in await store.take_orphans("second", seconds=60)] == [running.id]
        page = await store.list_items("conv_1")
        assert page is not None
        assert len(page.items) == 1
        assert await store.get_completion(chat.id, owner="ada") is not None
        assert await store.get_value("v") == b"1"


async def test_hostile_names_are_names(open_store: Open) -> None:
    """Ids, owners and names that no database would take as they are."""
    store = await open_store()
    for name in (
        "a\x00b",
        "'; DROP TABLE responses; --",
        "%_\\",
        "x" * 10_000,
        "\x01" + "0" * 64,
        "🙂\u202e",
        "*{}",
    ):
        item = message("user", name, item_id=name)
        made = record(owner=name, input_=[item], previous_response_id=name)
        await store.put(made)
        assert await store.get(made.id, owner=name) is not None
        assert await store.get(made.id, owner=name[:-1]) is None
        assert list(await store.find_items([name], owner=name)) == [name]
        await store.put_conversation(Conversation(id=name, created_at=1), owner=name)
        assert await store.append_items(name, [item], owner=name)
        assert await store.get_item(name, name, owner=name) == item
        assert (
            await store.compare_and_set(name, b"1", expected=None, seconds=60, owner=name) == b"1"
        )
        assert await store.count_events(name) == 0
        page = await store.list_completions(model=name, metadata={name: name}, owner=name)
        assert page is not None


async def test_what_nobody_used_is_forgotten_as_a_whole(open_store: Open) -> None:
    store = await open_store(ttl=0.4)
    done = record()
    await store.put(record(response_id=done.id, status="in_progress", streamed=True))
    await store.append_events(done.id, [b"0"])
    assert await store.advance(done, expected=("in_progress",))
    await store.append_events(done.id, [b"1"], last=True)
    await store.put_conversation(Conversation(id="conv_1", created_at=1))
    await store.append_items("conv_1", [message("user", "x")])
    running = record(status="in_progress")
    await store.put(running)
    await asyncio.sleep(0.6)
    assert await store.get(done.id) is None
    assert await store.history(done.id) is None
    assert await store.count_events(done.id) == 0
    assert await all_events(store, done.id) == []
    assert await store.get_conversation("conv_1") is None
    assert await store.list_items("conv_1") is None
    assert await store.get(running.id) is not None


@pytest.mark.slow
async def test_a_descendant_keeps_its_ancestors_past_their_time(open_store: Open) -> None:
    store = await open_store(ttl=12.0)
    root = record(output=[message("assistant", "a")])
    await store.put(root)
    await asyncio.sleep(6.1)
    child = record(previous_response_id=root.id)
    await store.put(child)
    await asyncio.sleep(6.1)
    history = await store.history(child.id)
    assert history is not None
    assert len(history) == 3


async def test_the_oldest_go_first(open_store: Open) -> None:
    store = await open_store(max_responses=10)
    ids = []
    for _ in range(30):
        each = record(output=[message("assistant", "x")], streamed=True)
        ids.append(each.id)
        await store.put(each)
        await store.append_events(each.id, [b"0"], last=True)

    async def bounded() -> bool:
        return sum([await store.count_events(each) for each in ids]) <= 10

    await wait_until_async(bounded, "what is kept is bounded")
    assert [each for each in ids if await store.get(each) is not None] == ids[-10:]


@pytest.mark.parametrize("kind", ["memory", *SHARED])
async def test_a_part_of_many_records_counts_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As long as one of them is stored; after that, others have the room."""
    url, size = image_url(200_000), 1_000_000
    async with opened(kind, request, tmp_path, max_bytes=size) as store:
        await store.put_conversation(Conversation(id="conv_1", created_at=1), owner="ada")
        for _ in range(2):
            kept = [record(input_=[seeing(url)], owner="ada") for _ in range(20)]
            for each in kept:
                await store.put(each)
                if kind != "redis":  # there, only responses share parts
                    await store.put_completion(completion(owner="ada", text=url))
                    assert await store.append_items("conv_1", each.input, owner="ada")
            await settled(store)
            assert [await store.history(each.id, owner="ada") for each in kept] == [
                list(each.input) for each in kept
            ]
            for each in kept:
                assert await store.delete(each.id, owner="ada")
        chats = await store.list_completions(owner="ada", limit=100)
        assert chats is not None
        for chat in chats.completions:
            assert await store.delete_completion(chat.id, owner="ada")
        assert await store.delete_conversation("conv_1", owner="ada")
        # Had a part been left, four of these would not have found room.
        large = [record(input_=[seeing(image_url(230_000))], owner="ada") for _ in range(4)]
        for each in large:
            await store.put(each)
        await settled(store)
        assert all([await store.get(each.id, owner="ada") for each in large])
        # And one too many removes the oldest, and not more.
        await store.put(record(input_=[seeing(image_url(230_000))], owner="ada"))
        await wait_until_async(lambda: is_gone(store, large[0].id))
        await settled(store)
        assert all([await store.get(each.id, owner="ada") for each in large[2:]])


async def is_gone(store: ResponseStore, response_id: str) -> bool:
    return await store.get(response_id, owner="ada") is None


async def settled(store: Any) -> None:
    """What is counted in the background is counted."""
    if hasattr(store, "_upkeep"):
        await store._upkeep.make_room()  # no other door
    if hasattr(store, "_ledger"):
        await store._ledger.close()


async def test_parts_without_records_are_removed(sql_store: Any) -> None:
    """Also those of a gateway that was killed before it could."""
    kept = [record(input_=[seeing(image_url())], owner="ada") for _ in range(3)]
    for each in kept:
        await sql_store.put(each)

    def number() -> Any:
        [[found]] = yield Statement("SELECT count(*) FROM parts")
        return found

    assert await sql_store._database.read(number) == 3
    for left, each in zip((2, 1, 0), kept, strict=True):
        assert await sql_store.delete(each.id, owner="ada")
        await sql_store._upkeep.expire()  # no other door
        assert await sql_store._database.read(number) == left
