"""The files of stores, when something else on the machine meddles with them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.storage.files.database import FilesDatabase
from gateway_testing.store_records import record

pytest.importorskip("gateway_sqlite")

from gateway_sqlite import SqliteConfig, open_sqlite

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def backed_up(path: Path) -> Path:
    """A copy of the database at `path`, beside it."""
    copy = path.with_name("copy.sqlite")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as made:
        source.backup(made)
    return copy


async def test_nothing_is_acknowledged_for_a_file_that_was_replaced(tmp_path: Path) -> None:
    """What is written to the file that was open is lost with the process."""
    path = tmp_path / "store.sqlite"
    known = record()
    async with open_sqlite(SqliteConfig(path=str(path))) as store:
        await store.put(known)
        os.replace(backed_up(path), path)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="replaced while it was in use"):
                await store.put(record())
            with pytest.raises(StoreUnavailable, match="replaced while it was in use"):
                await store.get(known.id)
            with pytest.raises(StoreUnavailable, match="replaced while it was in use"):
                await store.health()


async def test_a_file_that_was_moved_away_and_comes_back_is_used_again(tmp_path: Path) -> None:
    path, away = tmp_path / "store.sqlite", tmp_path / "away"
    known, late = record(), record()
    async with open_sqlite(SqliteConfig(path=str(path))) as store:
        await store.put(known)
        path.rename(away)
        with pytest.raises(StoreUnavailable, match="the file was removed"):
            await store.put(late)
        with pytest.raises(StoreUnavailable, match="the file was removed"):
            await store.health()
        assert not path.exists()
        away.rename(path)
        await store.health()
        await store.put(late)
    async with open_sqlite(SqliteConfig(path=str(path), check="full")) as store:
        assert await store.get(known.id) is not None
        assert await store.get(late.id) is not None


async def test_a_copy_in_place_of_the_file_is_opened_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    known = record()
    async with open_sqlite(SqliteConfig(path=str(path))) as store:
        await store.put(known)
        copy = backed_up(path)
    shutil.copyfile(copy, path)
    async with open_sqlite(SqliteConfig(path=str(path), check="full")) as store:
        assert await store.get(known.id) is not None
        await store.put(record())


async def test_a_link_in_place_of_a_lock_empties_no_file(tmp_path: Path) -> None:
    """A folder that others may write to, such as /tmp, may have links to files of the gateway's user."""
    other = tmp_path / "other"
    other.write_text("precious")
    path = tmp_path / "store.sqlite"
    path.with_name("store.sqlite.lock").symlink_to(other)
    async with open_sqlite(SqliteConfig(path=str(path))) as store:
        await store.put(record())
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "opening").symlink_to(other)
    FilesDatabase(folder / "x.sqlite3", ["CREATE TABLE t (a)"], name="It", setting="s").close()
    assert other.read_text() == "precious"


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_nothing_is_acknowledged_for_uploads_whose_database_is_gone(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "x.sqlite3"
    database = FilesDatabase(path, ["CREATE TABLE t (a)"], name="The files", setting="s")
    await database.write(lambda c: c.execute("INSERT INTO t VALUES (1)"))
    copy, away = backed_up(path), tmp_path / "away"
    path.rename(away)
    if how == "replaced":
        copy.rename(path)
    for use in (database.write, database.read):
        with pytest.raises(StoreUnavailable, match=how):
            await use(lambda c: c.execute("SELECT * FROM t").fetchall())
    away.replace(path)
    found = await database.read(lambda c: [tuple(row) for row in c.execute("SELECT * FROM t")])
    assert found == [(1,)]
    database.close()
