"""The writing thread: what becomes of operations when it is closed, and when one of a batch does not succeed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.base.errors import ConversationFull, StoreUnavailable
from gateway.plugins.protocols import ConversationBounds
from gateway.wire.response import Conversation
from gateway_sql import Operation, Statement
from gateway_sql.store import SqlStore
from gateway_sqlite import SqliteConfig, open_sqlite, writer
from gateway_sqlite.database import SqliteDatabase
from gateway_sqlite.schema import prepare
from gateway_testing.store_records import message, record

pytestmark = pytest.mark.anyio


def opened(path: Path) -> SqliteDatabase:
    config = SqliteConfig(path=str(path))
    prepare(path, config)
    return SqliteDatabase(path, config)


def insertion(name: str) -> Callable[[], Operation[None]]:
    def operation() -> Operation[None]:
        yield Statement("INSERT INTO cancels (id, at) VALUES ($1, 0)", (name,))

    return operation


def nothing() -> Operation[None]:
    yield Statement("SELECT 1")


def inserted(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT id FROM cancels")}


async def test_closing_stores_what_was_accepted_and_rejects_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    database = opened(path)
    number = writer.MAX_WAITING + 452
    writes = [asyncio.create_task(database.write(insertion(str(at)))) for at in range(number)]
    await asyncio.sleep(0)  # each write has its place, or waits for one
    await database.close()
    async with asyncio.timeout(60):
        results = await asyncio.gather(*writes, return_exceptions=True)
        with pytest.raises(StoreUnavailable, match="closed"):
            await database.write(insertion("later"))
    accepted = {str(at) for at, result in enumerate(results) if result is None}
    assert accepted == {str(at) for at in range(writer.MAX_WAITING)}
    assert all(isinstance(each, StoreUnavailable) for each in results if each is not None)
    assert inserted(path) == accepted


async def test_closing_that_is_cancelled_closes_the_connections(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    database = opened(path)
    await database.read(nothing)
    [connection] = database._opened
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(database.write(insertion("accepted")))
        await asyncio.sleep(0)
        close = asyncio.create_task(database.close())
        await asyncio.sleep(0.05)  # it waits for the write
        assert not close.done()
        close.cancel()
        with pytest.raises(asyncio.CancelledError):
            await close
        other.execute("ROLLBACK")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    await write
    assert inserted(path) == {"accepted"}


async def test_an_error_that_nobody_expected_while_shrinking_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(writer, "_SHRINK_SECONDS", 0.0)
    monkeypatch.setattr(writer, "shrink_database", fails)
    database = opened(tmp_path / "store.sqlite")
    async with asyncio.timeout(60):
        for name in ("first", "second"):
            await database.write(insertion(name))
    await database.close()
    assert inserted(tmp_path / "store.sqlite") == {"first", "second"}
    assert "a mistake" in caplog.text


@contextmanager
def statements_of(store: SqlStore) -> Iterator[list[str]]:
    """The statements of the writing connection."""
    connection = store._database._writer._connection  # type: ignore[attr-defined]
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    yield statements
    connection.set_trace_callback(None)


def repeats(statements: list[str]) -> list[str]:
    """Those by which a batch is run once again."""
    return [each for each in statements if each.startswith(("ROLLBACK", "SAVEPOINT"))]


async def test_a_full_conversation_does_not_repeat_the_other_operations(tmp_path: Path) -> None:
    bounds = ConversationBounds(1, 1_000_000)
    async with open_sqlite(SqliteConfig(path=str(tmp_path / "store.sqlite"))) as store:
        await store.put_conversation(Conversation(id="conv_1", created_at=1))
        assert await store.append_items("conv_1", [message("user", "x", item_id="msg_1")])
        made = [record() for _ in range(10)]
        further = [message("user", "x", item_id="msg_2")]
        with statements_of(store) as statements:
            [*_, full] = await asyncio.gather(
                *map(store.put, made),
                store.append_items("conv_1", further, bounds=bounds),
                return_exceptions=True,
            )
        assert isinstance(full, ConversationFull)
        assert [await store.get(each.id) for each in made] == made
        page = await store.list_items("conv_1")
    assert page is not None
    assert [item.id for item in page.items] == ["msg_1"]
    assert repeats(statements) == []


async def test_a_response_that_is_stored_already_does_not_repeat_the_other_operations(
    tmp_path: Path,
) -> None:
    async with open_sqlite(SqliteConfig(path=str(tmp_path / "store.sqlite"))) as store:
        known = record()
        await store.put(known)
        again = record(response_id=known.id, output=[message("assistant", "changed")])
        made = [record(output=[message("assistant", "x")]) for _ in range(60)]
        with statements_of(store) as statements:
            await asyncio.gather(*map(store.put, [*made, again]))
        assert [await store.get(each.id) for each in (*made, again)] == [*made, again]
        found = await store.find_items([each.response.output[0].id for each in made])
        assert len(found) == 60
    assert repeats(statements) == []
