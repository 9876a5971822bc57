"""The file of the SQLite store: where it is, who may read it, its schema, damage and backups."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.plugins.protocols import StoredResponse, UsageCount, UsageCounters
from gateway_sql import VERSIONS, Operation, Statement
from gateway_sql.upkeep import Upkeep
from gateway_sqlite import SqliteConfig, open_sqlite, writer
from gateway_sqlite.connections import connect, for_rows, translated
from gateway_sqlite.schema import prepare
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


def config(path: Path) -> SqliteConfig:
    return SqliteConfig(path=str(path))


async def stored(path: Path) -> str:
    """A file with one response; its id."""
    made = record(output=[message("assistant", "secret")])
    async with open_sqlite(config(path)) as store:
        await store.put(made)
    return made.id


async def opening(path: Path) -> str:
    """Why the file cannot be opened."""
    with pytest.raises(ConfigurationError) as error:
        async with open_sqlite(config(path)):
            pass
    return str(error.value)


def test_it_lies_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert SqliteConfig().file() == tmp_path / "litegate/store.sqlite"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for nothing in ("", "relative/folder"):
        monkeypatch.setenv("XDG_STATE_HOME", nothing)
        assert SqliteConfig().file() == tmp_path / "home/.local/state/litegate/store.sqlite"
    assert SqliteConfig(path="~/mine.sqlite").file() == tmp_path / "home/mine.sqlite"


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.sqlite"
    async with open_sqlite(config(path)) as store:
        await store.put(record())
        for each in path.parent.iterdir():
            assert each.stat().st_mode & 0o077 == 0 or each.suffix == ".lock", each
    assert path.parent.stat().st_mode & 0o077 == 0


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    await stored(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(VERSIONS) + 1}")
    assert "written by a newer release" in await opening(path)


async def test_an_older_schema_is_migrated_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    kept = await stored(path)
    later = (*VERSIONS, ("ALTER TABLE responses ADD COLUMN further TEXT", "CREATE TABLE more (num {identity})"))  # fmt: skip
    for _ in range(2):
        prepare(path, config(path), later)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT id, further FROM responses").fetchall() == [(kept, None)]
        assert database.execute("PRAGMA user_version").fetchone() == (len(later),)


async def test_a_file_of_a_release_that_did_not_count_usage(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    prepare(path, config(path), VERSIONS[:2])
    async with open_sqlite(config(path)) as store:
        assert isinstance(store, UsageCounters)
        await store.add_usage("b", [UsageCount(bucket=1, api="chat", principal=None, model="m")])
        assert len(await store.read_usage(1, 1)) == 1


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    kept = await stored(path)
    broken = (*VERSIONS, ("CREATE TABLE more (num {identity})", "ALTER TABLE nothing ADD COLUMN x TEXT"))  # fmt: skip
    with pytest.raises(ConfigurationError):
        prepare(path, config(path), broken)
    async with open_sqlite(config(path)) as store:
        assert await store.get(kept) is not None


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    async with open_sqlite(config(path)) as store:
        for _ in range(200):
            await store.put(record(output=[message("assistant", "x" * 5000)]))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * 20_000)
    assert "is damaged" in await opening(path)
    path.write_bytes(b"not a database" * 1000)
    assert "is damaged" in await opening(path)


async def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    assert "another program" in await opening(path)
    assert path.read_bytes() == before


async def test_a_place_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert "path under [stores.sqlite]" in await opening(file / "store.sqlite")


async def test_a_file_that_is_removed_is_not_made_anew(tmp_path: Path) -> None:
    """An empty one would hide that everything is lost, until the next start."""
    path = tmp_path / "store.sqlite"
    async with open_sqlite(config(path)) as store:
        await store.put(record())
        path.unlink()
        store._database._writer._close()  # type: ignore[attr-defined]  # as after a failure
        with pytest.raises(StoreUnavailable):
            await store.put(record())
        with pytest.raises(StoreUnavailable):
            await store.health()
        assert not path.exists()


async def test_a_file_that_is_removed_is_noticed_at_once(tmp_path: Path) -> None:
    """Also just after it was written, when the database is not asked."""
    path = tmp_path / "store.sqlite"
    async with open_sqlite(config(path)) as store:
        await store.put(record())
        await store.health()
        path.rename(tmp_path / "moved.sqlite")
        with pytest.raises(StoreUnavailable, match="removed"):
            await store.health()


async def test_an_operation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Whether it has a transaction for itself or shares one, and the others of the transaction stay."""

    def failing(error: Exception) -> Callable[[], Operation[None]]:
        def operation() -> Operation[None]:
            yield Statement("INSERT INTO cancels (id, at) VALUES ('left', 0)")
            raise error

        return operation

    def left() -> Operation[int]:
        rows = yield Statement("SELECT count(*) FROM cancels")
        return int(rows[0][0])

    async with open_sqlite(config(tmp_path / "store.sqlite")) as store:
        database = store._database
        before = database._writer.committed_at
        with pytest.raises(ValueError, match="alone"):
            await database.write(failing(ValueError("alone")))
        assert database._writer.committed_at == before, "it says nothing about the disk"
        with pytest.raises(StoreUnavailable):
            await database.write(failing(sqlite3.IntegrityError("alone")))
        kept = record()
        done = await asyncio.gather(
            database.write(failing(ValueError("beside others"))),
            store.put(kept),
            database.write(failing(sqlite3.IntegrityError("beside others"))),
            return_exceptions=True,
        )
        assert [type(each) for each in done] == [ValueError, type(None), StoreUnavailable]
        assert await store.get(kept.id) is not None
        assert await database.read(left) == 0
        await store.health()


async def test_responses_that_are_stored_together_share_statements(tmp_path: Path) -> None:
    async with open_sqlite(config(tmp_path / "store.sqlite")) as store:
        await store.put(record())  # the connection is open
        connection = store._database._writer._connection
        assert connection is not None
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        made = [record(output=[message("assistant", "x")], owner="alice") for _ in range(40)]
        await asyncio.gather(*map(store.put, made))
        connection.set_trace_callback(None)
        for each in made:
            assert await store.get(each.id, owner="alice") == each
        found = await store.find_items([each.response.output[0].id for each in made], owner="alice")
    assert len(found) == 40
    assert sum(each.startswith("BEGIN") for each in statements) <= 2
    assert sum(each.startswith("INSERT INTO responses") for each in statements) < 20


async def test_what_is_stored_already_is_replaced_also_among_others(tmp_path: Path) -> None:
    async with open_sqlite(config(tmp_path / "store.sqlite")) as store:
        first, second = record(), record()
        await store.put(first)
        new, again, twice = record(), changed(first), changed(second)
        await asyncio.gather(*map(store.put, (new, again, second, twice)))
        stored = [await store.get(each.id) for each in (new, first, second)]
        assert stored == [new, again, twice]
        await store.put(first)
        assert await store.get(first.id) == first


def changed(of: StoredResponse) -> StoredResponse:
    """Another record with the same id."""
    return record(response_id=of.id, output=[message("assistant", "changed")])


async def test_a_response_that_cannot_be_stored_is_refused_alone(tmp_path: Path) -> None:
    async with open_sqlite(config(tmp_path / "store.sqlite")) as store:
        wrong = record(response_id="resp_\ud800", input_=[message("user", "x", item_id="\ud800")])
        good = [record() for _ in range(5)]
        for before in (0, 3):
            puts = [*good[:before], wrong, *good[before:]]
            done = await asyncio.gather(*map(store.put, puts), return_exceptions=True)
            failed = [isinstance(each, Exception) for each in done]
            assert failed == [each is wrong for each in puts]
        assert [await store.get(each.id) for each in good] == good
        await store.health()


async def test_the_number_of_a_removed_response_is_not_used_again(tmp_path: Path) -> None:
    """It may still be known elsewhere, as that of an entry to evict."""

    def newest() -> Operation[int]:
        rows = yield Statement("SELECT max(num) FROM responses")
        return int(rows[0][0])

    async with open_sqlite(config(tmp_path / "store.sqlite")) as store:
        first, second, child = record(), record(), record(previous_response_id="resp_x")
        await asyncio.gather(store.put(first), store.put(second))
        before = await store._database.read(newest)
        assert await store.delete(second.id)
        await store.put(child)
        assert await store._database.read(newest) == before + 1
        assert await store.delete(child.id)
        await store.put(record())
        assert await store._database.read(newest) == before + 2


def test_connections_make_no_file(tmp_path: Path) -> None:
    """Also not where it is removed after a look whether it is there. Names of files have any characters."""
    for name in ("gone.sqlite", "a ?b=c#d%20\u00e9.sqlite"):
        path = tmp_path / name
        with pytest.raises(sqlite3.OperationalError):
            connect(path, timeout=1, synchronous="full", read_only=False)
        assert not path.exists()
        path.touch()
        connect(path, timeout=1, synchronous="full", read_only=False).close()
    assert len(list(tmp_path.iterdir())) == 2


async def test_a_backup_is_made_while_it_is_used(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.sqlite", tmp_path / "copy.sqlite"
    command = [sys.executable, "-m", "gateway_sqlite", "backup", "--path", path, copy]
    async with open_sqlite(config(path)) as store:
        first = record()
        await store.put(first)
        done = asyncio.Event()

        async def write() -> None:
            while not done.is_set():
                await store.put(record(output=[message("assistant", "x" * 1000)]))

        writing = asyncio.create_task(write())
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        done.set()
        await writing
    assert ran.returncode == 0, ran.stderr
    assert copy.stat().st_mode & 0o077 == 0
    async with open_sqlite(SqliteConfig(path=str(copy), check="full")) as store:
        assert await store.get(first.id) is not None
    again = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert again.returncode == 1
    assert "exists" in again.stderr


async def test_a_process_that_was_killed_is_not_notified_for_ever(tmp_path: Path) -> None:
    """Its socket stays in the folder, until the next notification."""
    path = tmp_path / "store.sqlite"
    folder = tmp_path / "store.sqlite.sockets"
    folder.mkdir()
    (folder / "1-dead").touch()
    async with open_sqlite(config(path)) as store:
        running = record(status="in_progress")
        await store.put(running)
        await store.append_events(running.id, [b"0"], last=True)
        assert [each.name for each in folder.iterdir() if each.name == "1-dead"] == []
    assert list(folder.iterdir()) == []


async def test_too_much_at_once_waits_and_then_is_refused(tmp_path: Path) -> None:
    """While another process writes: the queue is bounded, and nobody waits longer than `timeout`."""
    path = tmp_path / "store.sqlite"
    async with open_sqlite(SqliteConfig(path=str(path), timeout=0.2)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            results = await asyncio.gather(
                *(store.put(record()) for _ in range(3000)), return_exceptions=True
            )
            assert all(isinstance(each, StoreUnavailable) for each in results)
            other.execute("ROLLBACK")

        async def works() -> bool:
            try:
                await store.put(record())
            except StoreUnavailable:  # a slow machine
                return False
            return True

        await wait_until_async(works)


def test_statements_are_translated() -> None:
    assert (
        translated(
            "SELECT a FROM b WHERE c = ANY($1::text[]) AND d = $2::bytea FOR UPDATE SKIP LOCKED"
        )
        == "SELECT a FROM b WHERE c IN (SELECT value FROM json_each(?1)) AND d = ?2"
    )
    assert translated("SELECT a FROM b WHERE c = $1 FOR SHARE") == "SELECT a FROM b WHERE c = ?1"


def test_insertions_of_one_row_become_those_of_several() -> None:
    assert (
        for_rows("INSERT INTO a (b, c) VALUES (?1, ?2) ON CONFLICT (b) DO NOTHING", 3)
        == "INSERT INTO a (b, c) VALUES (?, ?), (?, ?), (?, ?) ON CONFLICT (b) DO NOTHING"
    )
    for other in (
        "INSERT INTO a (b, c) VALUES (?2, ?1)",
        "INSERT INTO a (b, c) VALUES (?1, 0)",
        "INSERT INTO a (b) VALUES (?1) ON CONFLICT (b) DO UPDATE SET b = ?2",
        "UPDATE a SET b = ?1 WHERE c = ?2",
    ):
        assert for_rows(other, 2) is None


async def test_a_clock_that_was_set_back_keeps_no_response_from_being_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = record(status="in_progress")
    async with open_sqlite(config(tmp_path / "store")) as store:
        await store.lease("dead", [running.id], seconds=9)
        await store.put(running)
        assert not await store.take_orphans("alive", seconds=9)
        known = time.time
        monkeypatch.setattr(time, "time", lambda: known() - 3600)
        assert [each.id for each in await store.take_orphans("alive", seconds=9)] == [running.id]
        assert not await store.take_orphans("other", seconds=9)


async def test_what_is_deleted_is_given_back_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_SHRINK_SECONDS", 0.0)
    path = tmp_path / "store.sqlite"
    text = "words " * 1000
    large = [record(output=[message("assistant", text) for _ in range(500)]) for _ in range(5)]
    async with open_sqlite(config(path)) as store:
        for each in large:
            await store.put(each)
        before = pages_of(path)
        for each in large:
            assert await store.delete(each.id, owner=each.owner)

        async def small() -> bool:
            await store.put(record())
            return pages_of(path) < before // 2

        await wait_until_async(small, "the file shrinks")


def pages_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        [pages] = database.execute("PRAGMA page_count").fetchone()
        return int(pages)


async def test_events_of_a_response_that_another_process_has_deleted_are_refused(
    tmp_path: Path,
) -> None:
    """Its run ends, as it does where this process deletes it. It is no fault of the store, which the log would name."""
    path = tmp_path / "store.sqlite"
    running = record(status="in_progress", streamed=True)
    async with open_sqlite(config(path)) as owner, open_sqlite(config(path)) as other:
        await owner.put(running)
        assert await owner.append_events(running.id, [b"0"])
        assert await other.delete(running.id)
        assert await owner.append_events(running.id, [b"1"]) is False
        assert await owner.append_events(running.id, [b"2"], last=True) is False


async def test_what_expires_is_removed_after_an_error_that_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the file would grow for ever, and the stop would end with the error."""
    tries = 0

    async def fails(upkeep: Upkeep) -> None:
        nonlocal tries
        tries += 1
        raise ValueError("a mistake")

    monkeypatch.setattr(Upkeep, "expire", fails)
    async with open_sqlite(SqliteConfig(path=str(tmp_path / "store.sqlite"), ttl=0.2)):
        await wait_until_async(lambda: tries > 1, "it is tried again")
    assert "a mistake" in caplog.text
