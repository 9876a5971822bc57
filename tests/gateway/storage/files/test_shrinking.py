"""Databases of files give the space of what is deleted back to the disk, and cut their write-ahead logs."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.storage.files import shrinking
from gateway.storage.files.database import FilesDatabase
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
TABLE = "CREATE TABLE parts (number INTEGER PRIMARY KEY, data BLOB NOT NULL)"
MIB = 1 << 20


def opened(path: Path) -> FilesDatabase:
    return FilesDatabase(path, [TABLE], name="The files", setting="x.path")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "files.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[FilesDatabase]:
    made = opened(path)
    yield made
    made.close()


def size(path: Path) -> int:
    return path.stat().st_size


def log_size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def fill(database: FilesDatabase, mib: int, start: int = 0) -> None:
    rows = [(start + number, b"x" * MIB) for number in range(mib)]
    await database.write(lambda c: c.executemany("INSERT INTO parts VALUES (?, ?)", rows))


async def delete(database: FilesDatabase, where: str) -> None:
    await database.write(lambda c: c.execute(f"DELETE FROM parts WHERE {where}"))


async def shrinks(database: FilesDatabase, path: Path, mib: int) -> None:
    """Wait until the file has less than `mib`. A reader may hold it up, until the next write."""

    async def small() -> bool:
        await delete(database, "number < 0")
        return size(path) < mib * MIB

    await wait_until_async(small, "the file shrinks")


async def test_what_is_deleted_is_given_back_to_the_disk(
    database: FilesDatabase, path: Path
) -> None:
    await fill(database, 40)
    pages = await database.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    assert pages > 40 * MIB // 4096
    await delete(database, "number % 4 > 0")  # in the middle too
    await shrinks(database, path, 20)
    rows = await database.read(lambda c: c.execute("SELECT number, data FROM parts").fetchall())
    assert [row["number"] for row in rows] == list(range(0, 40, 4))
    assert all(row["data"] == b"x" * MIB for row in rows)
    await delete(database, "1")
    await shrinks(database, path, 5)


async def test_the_log_of_a_large_write_is_cut(database: FilesDatabase, path: Path) -> None:
    await fill(database, 30)

    async def cut() -> bool:
        await delete(database, "number < 0")
        return log_size(path) <= shrinking.WAL_BYTES

    await wait_until_async(cut, "the log is cut")


async def test_a_log_that_somebody_reads_is_cut_after_a_later_write(
    database: FilesDatabase, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM parts").fetchall()
        await fill(database, 30)
        await fill(database, 1, 30)
        assert log_size(path) > shrinking.WAL_BYTES
        reader.execute("COMMIT")

    async def cut() -> bool:
        await delete(database, "number < 0")
        return log_size(path) <= shrinking.WAL_BYTES

    await wait_until_async(cut, "the log is cut")


def of_an_earlier_version(path: Path, mib: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
        connection.execute("PRAGMA user_version = 1")
        rows = [(number, b"x" * MIB) for number in range(mib)]
        connection.executemany("INSERT INTO parts VALUES (?, ?)", rows)


async def test_writers_do_not_wait_for_a_log_that_somebody_reads_at_each_write(
    database: FilesDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.storage.files.database._READ_SECONDS", 3600.0)
    attempts = 0
    shrink = shrinking.shrink_database

    def counted(*given: Any) -> None:
        nonlocal attempts
        attempts += 1
        shrink(*given)

    monkeypatch.setattr(shrinking, "shrink_database", counted)
    await fill(database, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM parts").fetchall()
        await fill(database, 20, start=1)
        assert log_size(path) > shrinking.WAL_BYTES
        await wait_until_async(lambda: database._cuts_from > 0, "the log was to be cut")
        for _ in range(20):
            await delete(database, "number < 0")
    assert attempts <= 2


async def test_a_log_whose_size_cannot_be_read_ends_no_writer(
    database: FilesDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(database, 1)
    known = Path.stat

    def stat(self: Path, **given: Any) -> Any:
        if self.name.endswith("-wal"):
            raise OSError(errno.EIO, "Input/output error")
        return known(self, **given)

    monkeypatch.setattr(Path, "stat", stat)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        shrinking.shrink_database(connection, path, lambda: False)
    assert not shrinking.is_log_large(path)


async def test_a_database_of_an_earlier_version_shrinks_too(path: Path) -> None:
    of_an_earlier_version(path, 20)
    # Another process, which has the database open.
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM parts").fetchone() == (20,)
        database = opened(path)
        await delete(database, "number < 10")
        await shrinks(database, path, 15)
        with other:
            other.execute("INSERT INTO parts VALUES (100, x'01')")
            other.execute("DELETE FROM parts WHERE number < 15")
        await delete(database, "number = 15")
        await shrinks(database, path, 10)
        database.close()
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_large_one_of_an_earlier_version_is_left_as_it_is_and_works(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shrinking, "CONVERTED_BYTES", MIB)
    of_an_earlier_version(path, 10)
    with caplog.at_level("INFO", "gateway.storage.files"):
        database = opened(path)
    assert "PRAGMA auto_vacuum = INCREMENTAL; VACUUM" in caplog.text
    await delete(database, "1")
    await fill(database, 1)
    pages = await database.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    database.close()
    assert pages > 10 * MIB // 4096


async def test_who_reads_does_not_wait_for_writers(database: FilesDatabase, path: Path) -> None:
    """Each of its connections is new."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        waiting = [database.read(lambda c: c.execute("SELECT 1").fetchone()[0]) for _ in range(4)]
        assert await asyncio.gather(*waiting) == [1, 1, 1, 1]
        writer.execute("ROLLBACK")
