"""The PostgreSQL store: its schema, its clock, and a server that goes and comes."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from threading import Thread
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.plugins.protocols import UsageCount, UsageCounters
from gateway.wire.response import Conversation
from gateway_postgres import PostgresConfig, open_postgres
from gateway_postgres.failures import is_temporary
from gateway_postgres.schema import prepare
from gateway_sql import VERSIONS, Operation, Statement
from gateway_testing import check_plugin
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.store_part_contract import image_url, seeing
from gateway_testing.store_records import message, record
from tests.switched_address import switched_address
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Open = Callable[..., Any]


@pytest.fixture
def config(postgres_process: PostgresProcess) -> PostgresConfig:
    """Of a schema that is this test's own."""
    return PostgresConfig(
        url=postgres_process.url, schema=f"t_{uuid.uuid4().hex[:12]}", connect_timeout=30
    )


@pytest.fixture
async def connection(config: PostgresConfig) -> AsyncIterator[Any]:
    made = await asyncpg.connect(config.url)
    yield made
    await made.close()


@pytest.fixture
def own_server() -> Iterator[PostgresProcess]:
    """A server that may be hurt."""
    try:
        made = PostgresProcess()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def test_it_is_an_installed_plugin() -> None:
    assert check_plugin("postgres").offers == ["store postgres"]


async def test_gateways_that_start_at_once_create_the_tables_once(config: PostgresConfig) -> None:
    async with AsyncExitStack() as stack:
        stores = await asyncio.gather(
            *(stack.enter_async_context(open_postgres(config)) for _ in range(5))
        )
        kept = record()
        await stores[0].put(kept)
        for store in stores:
            assert await store.get(kept.id) is not None


async def test_a_newer_schema_is_refused(config: PostgresConfig, connection: Any) -> None:
    await prepare(connection, config.schema, (*VERSIONS, ("CREATE TABLE more (x INTEGER)",)))
    with pytest.raises(ConfigurationError, match="written by a newer release"):
        async with open_postgres(config):
            pass


async def test_an_older_schema_is_migrated_once(config: PostgresConfig, connection: Any) -> None:
    kept = record()
    async with open_postgres(config) as store:
        await store.put(kept)
        later = (*VERSIONS, ("ALTER TABLE responses ADD COLUMN further TEXT",))
        for _ in range(2):
            await prepare(connection, config.schema, later)
        assert await store.get(kept.id) is not None, "a running gateway is not disturbed"
        await store.put(record(response_id=kept.id))


async def test_the_schema_of_a_release_that_did_not_count_usage(
    config: PostgresConfig, connection: Any
) -> None:
    await prepare(connection, config.schema, VERSIONS[:2])
    async with open_postgres(config) as store:
        assert isinstance(store, UsageCounters)
        await store.add_usage("b", [UsageCount(bucket=1, api="chat", principal=None, model="m")])
        assert len(await store.read_usage(1, 1)) == 1


async def test_writers_of_the_same_images_do_not_lock_each_other_out(
    config: PostgresConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two conversations with the same images in another order, while unused ones are removed: each deadlock would cost a second."""
    deadlocks: list[BaseException] = []

    def seen(error: BaseException) -> bool:
        if isinstance(error, asyncpg.DeadlockDetectedError):
            deadlocks.append(error)
        return is_temporary(error)

    monkeypatch.setattr("gateway_postgres.database.is_temporary", seen)
    urls = [image_url() for _ in range(6)]
    async with open_postgres(config) as store:

        async def live(number: int) -> None:
            made = Conversation(id=f"conv_{number}_{uuid.uuid4().hex}", created_at=1)
            await store.put_conversation(made)
            for turn in range(4):
                seen_first = urls if (number + turn) % 2 else urls[::-1]
                assert await store.append_items(made.id, [seeing(url) for url in seen_first])
            await store.delete_conversation(made.id)

        for _ in range(2):
            await asyncio.gather(*(live(number) for number in range(8)))
            await store._upkeep.make_room()
    assert not deadlocks


async def test_a_migration_that_fails_changes_nothing(
    config: PostgresConfig, connection: Any
) -> None:
    async with open_postgres(config):
        pass
    broken = (*VERSIONS, ("CREATE TABLE more (x INTEGER)", "ALTER TABLE nothing ADD COLUMN x TEXT"))
    with pytest.raises(asyncpg.UndefinedTableError):
        await prepare(connection, config.schema, broken)
    async with open_postgres(config):
        pass


@pytest.mark.parametrize("each", [False, True])
async def test_a_transaction_that_the_server_ended_because_the_gateway_stood_still_is_run_again(
    config: PostgresConfig, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine under load, or suspended, is silent for longer than the server waits."""
    monkeypatch.setattr("gateway_postgres.connection_settings._IDLE_MILLISECONDS", "200")
    begun = 0

    def operation() -> Operation[int]:
        nonlocal begun
        begun += 1
        rows = yield Statement("SELECT 1")
        if begun == 1:
            time.sleep(0.6)  # the event loop stands still
        if each:
            yield Statement(
                "INSERT INTO value_owners VALUES ($1, 0, 0)", [("a",), ("b",)], each=True
            )
        else:
            yield Statement("SELECT 2")
        return len(rows)

    async with open_postgres(config) as store:
        database: Any = store._database  # type: ignore[attr-defined]  # no other door
        assert await database.write(operation) == 1
    assert begun == 2


async def test_connections_that_ended_while_the_gateway_stood_still_are_replaced(
    config: PostgresConfig, own_server: PostgresProcess
) -> None:
    """As by a server that was restarted, or a pooler."""

    def end_connections() -> None:
        async def end() -> None:
            connection = await asyncpg.connect(own_server.url)
            sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'litegate'"
            assert await connection.fetch(sql)
            await connection.close()

        asyncio.run(end())

    async with open_postgres(structs.replace(config, url=own_server.url)) as store:
        kept = record()
        await store.put(kept)
        other = Thread(target=end_connections)
        other.start()
        other.join()  # this event loop stands still
        await store.put(record())
        assert await store.get(kept.id) is not None


@pytest.mark.parametrize(
    "error",
    [asyncpg.InternalClientError("cannot switch to state 15"), asyncpg.InterfaceError("closed")],
)
async def test_a_connection_that_asyncpg_gives_up_is_a_store_that_is_away(
    config: PostgresConfig, error: Exception
) -> None:
    """As when the server has ended it amid an operation. Writes are repeated then."""

    async def work(connection: Any) -> None:
        raise error

    async with open_postgres(config) as store:
        database: Any = store._database  # type: ignore[attr-defined]  # no other door
        with pytest.raises(StoreUnavailable):
            await database._with_connection(work)


async def test_a_transaction_that_deadlocks_every_time_is_a_store_that_is_away(
    config: PostgresConfig,
) -> None:
    """Its request may be sent again, which an answer of 500 denies."""
    tries = 0

    def deadlocks() -> Operation[None]:
        nonlocal tries
        yield Statement("SELECT 1")
        tries += 1
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    async with open_postgres(config) as store:
        database: Any = store._database  # type: ignore[attr-defined]  # no other door
        with pytest.raises(StoreUnavailable):
            await database.write(deadlocks)
    assert tries > 1


async def test_the_time_is_the_servers(
    config: PostgresConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine may be wrong by days."""
    before = time.time()
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    async with open_postgres(config) as store:
        assert abs(store._database.now() - before) < 60  # type: ignore[attr-defined]  # no other door


async def test_it_is_the_servers_again_after_the_machine_was_suspended(
    config: PostgresConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_postgres(config) as store:
        database: Any = store._database  # type: ignore[attr-defined]  # no other door
        database._offset -= 3600  # as after an hour in which the monotonic clock stood still
        known = time.time
        monkeypatch.setattr(time, "time", lambda: known() + 3600)
        await store.health()
        assert abs(database.now() - known()) < 60


@pytest.mark.parametrize("url", ["nonsense", "postgresql://[bad/x", "http://127.0.0.1/x"])
async def test_a_bad_url_is_one_sentence(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[stores.postgres\]"):
        async with open_postgres(PostgresConfig(url=url, password="hidden", connect_timeout=1)):
            pass


async def test_a_missing_database_is_told(config: PostgresConfig) -> None:
    url = config.url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(ConfigurationError, match="nowhere"):
        async with open_postgres(PostgresConfig(url=url)):
            pass


async def test_notifications_that_are_too_long_are_heard_too(config: PostgresConfig) -> None:
    """Hundreds of logs grow with one transaction; the others are told to look at everything."""
    async with open_postgres(config) as one, open_postgres(config) as other:
        kept = [record(status="in_progress", streamed=True) for _ in range(400)]
        await asyncio.gather(*(one.put(each) for each in kept))

        async def follow(response_id: str) -> list[bytes]:
            async with aclosing(other.read_events(response_id)) as log:
                return [event async for batch in log for event in batch]

        following = [asyncio.create_task(follow(each.id)) for each in kept]
        for number in range(3):
            await asyncio.gather(
                *(one.append_events(each.id, [b"%d" % number], last=number == 2) for each in kept)
            )
        async with asyncio.timeout(60):
            assert await asyncio.gather(*following) == [[b"0", b"1", b"2"]] * 400


async def test_a_lost_listener_comes_back_and_misses_nothing(
    config: PostgresConfig, connection: Any
) -> None:
    async with open_postgres(config) as one, open_postgres(config) as other:
        kept = record(status="in_progress", streamed=True)
        await one.put(kept)
        await one.append_events(kept.id, [b"0"])
        async with asyncio.timeout(60), aclosing(other.read_events(kept.id)) as log:
            assert list(await anext(log)) == [b"0"]
            rest = asyncio.ensure_future(anext(log))
            await asyncio.sleep(0.05)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            )
            await one.append_events(kept.id, [b"1"], last=True)
            assert list(await rest) == [b"1"]


@pytest.mark.slow
async def test_a_server_that_restarts_loses_nothing_and_doubles_nothing(
    own_server: PostgresProcess,
) -> None:
    """Killed again and again, while logs grow: what is repeated was not applied before."""
    there = PostgresConfig(url=own_server.url, outage=60, connect_timeout=60, timeout=10)
    async with open_postgres(there) as store:
        kept = [record(status="in_progress", streamed=True) for _ in range(20)]
        for each in kept:
            await store.put(each)

        async def write(response_id: str) -> None:
            for number in range(40):
                await store.append_events(response_id, [b"%d" % number])
                await asyncio.sleep(0.05)
            ended = record(
                response_id=response_id, streamed=True, output=[message("assistant", "x")]
            )
            assert await store.advance(ended, expected=("in_progress",))
            await store.append_events(response_id, [b"40"], last=True)

        writing = [asyncio.create_task(write(each.id)) for each in kept]
        for _ in range(3):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(120):
            await asyncio.gather(*writing)
        for each in kept:
            async with aclosing(store.read_events(each.id)) as log:
                events = [event async for batch in log for event in batch]
            assert events == [b"%d" % number for number in range(41)]


@pytest.mark.slow
async def test_a_server_that_is_away_is_told(own_server: PostgresProcess) -> None:
    there = PostgresConfig(url=own_server.url, outage=0, connect_timeout=30, timeout=10)
    async with open_postgres(there) as store:
        await store.health()
        await asyncio.to_thread(own_server.kill)
        for call in (store.health(), store.put(record()), store.get("resp_x")):
            with pytest.raises(StoreUnavailable):
                await call
        await asyncio.to_thread(own_server.start)

        async def back() -> bool:
            try:
                await store.put(record())
            except StoreUnavailable:
                return False
            return True

        await wait_until_async(back, "the server is back")
        await store.health()


async def test_a_database_that_may_not_be_written_is_one_that_is_away(
    config: PostgresConfig, connection: Any
) -> None:
    async with open_postgres(config):
        pass
    name = f"reader_{uuid.uuid4().hex[:8]}"
    await connection.execute(f"CREATE ROLE {name} LOGIN")
    await connection.execute(f"GRANT USAGE ON SCHEMA {config.schema} TO {name}")
    await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {config.schema} TO {name}")
    reader = PostgresConfig(url=config.url, username=name, schema=config.schema, outage=0)
    async with open_postgres(reader) as store:
        with pytest.raises(StoreUnavailable):
            await store.put(record())


async def test_an_old_primary_that_stays_up_read_only_is_left(
    postgres_process: PostgresProcess, own_server: PostgresProcess
) -> None:
    """Its connections stay open after the address leads to the new primary."""
    async with switched_address(own_server.port) as address:
        schema = f"t_{uuid.uuid4().hex[:12]}"
        config = PostgresConfig(
            url=f"postgresql://postgres@127.0.0.1:{address.port}/postgres",
            schema=schema,
            connect_timeout=30,
            timeout=30,
        )
        there = structs.replace(config, url=postgres_process.url)
        async with open_postgres(there) as new, open_postgres(config) as store:
            assert new.shared
            await asyncio.gather(*(store.put(record()) for _ in range(8)))
            own_server.ask("ALTER SYSTEM SET default_transaction_read_only = on")
            own_server.ask("SELECT pg_reload_conf()")

            async def is_read_only() -> bool:
                try:
                    await store.health()
                except StoreUnavailable as error:
                    return "read-only" in str(error)
                return False

            async with asyncio.timeout(60):
                while not await is_read_only():  # noqa: ASYNC110  # the server reads its settings anew
                    await asyncio.sleep(0.05)
            with pytest.raises(StoreUnavailable, match="read-only"):
                await store.put(record())
            address.target = postgres_process.port
            await asyncio.sleep(1.1)  # connections are renewed once a second at most
            kept = [record() for _ in range(8)]
            await asyncio.gather(*map(store.put, kept))
            await store.health()
            for each in kept:
                assert await new.get(each.id) is not None
