"""Files in databases: stored and sent in parts, listed in pages, separate for each owner."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gateway.base.errors import (
    ConfigurationError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    StoreUnavailable,
)
from gateway.storage.files.contents import PART, Download, content_of, part_of, write_content
from gateway.storage.files.database import FilesDatabase
from gateway.storage.files.form import FileUpload
from gateway.storage.files.lists import ListQuery, list_query, page
from gateway.storage.files.uploaded import FILE_TABLES, FileObject, UploadedFiles, uploaded_files

pytestmark = pytest.mark.anyio


class Limits(Struct, frozen=True):
    max_file_bytes: int = 1000
    max_total_bytes: int = 3 * PART
    max_files: int = 3


def opened(folder: Path, *versions: str) -> FilesDatabase:
    return FilesDatabase(
        folder / "files.sqlite3", versions or (FILE_TABLES,), name="The files", setting="x.path"
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FilesDatabase]:
    made = opened(tmp_path)
    yield made
    made.close()


def upload(content: bytes = b"abc", **settings: Any) -> FileUpload:
    defaults = {"filename": "a.txt", "purpose": "user_data"}
    return FileUpload(content=io.BytesIO(content), **{**defaults, **settings})


async def sent(app: Any) -> tuple[dict[str, str], bytes]:
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app({}, None, send)
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    assert [each["more_body"] for each in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return headers, b"".join(each["body"] for each in messages[1:])


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART])
async def test_a_content_comes_back_whole(database: FilesDatabase, size: int) -> None:
    content = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    content = content[:size]
    files = UploadedFiles(database, Limits())
    made = await files.add("ada", upload(content, filename='ü"\r\n.html'))
    assert made.bytes == size
    headers, body = await sent(await files.download("ada", made.id))
    assert body == content
    assert headers["content-length"] == str(size)
    assert headers["content-disposition"].endswith("''%C3%BC%22%0D%0A.html")
    assert headers["content-type"] == "application/octet-stream"
    async with files.copied("ada", made.id) as (name, copy):
        copy.seek(0)
        assert (name, copy.read()) == ('ü"\r\n.html', content)
    largest = await database.read(
        lambda c: c.execute("SELECT max(length(data)) FROM contents").fetchone()[0]
    )
    assert (largest or 0) <= PART


async def test_parts_of_another_size_are_read(database: FilesDatabase) -> None:
    """As an earlier version has written them."""
    files = UploadedFiles(database, Limits())
    made = await files.add("", upload(b""))

    def write(connection: sqlite3.Connection) -> bytes:
        connection.execute("UPDATE files SET bytes = 7")
        for number, data in enumerate((b"abcd", b"efg")):
            connection.execute("INSERT INTO contents VALUES (1, ?, ?)", (number, data))
        return content_of(connection, 1)

    assert await database.write(write) == b"abcdefg"
    assert (await sent(await files.download("", made.id)))[1] == b"abcdefg"


async def test_a_file_that_is_deleted_while_it_is_sent_ends_in_an_error(
    database: FilesDatabase,
) -> None:
    files = UploadedFiles(database, Limits())
    made = await files.add("", upload(b"abc"))
    download = await files.download("", made.id)
    await files.delete("", made.id)
    with pytest.raises(OSError, match="deleted or changed"):
        await sent(download)


async def test_an_owner_has_only_his_own_files(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    made = await files.add("ada", upload())
    assert await files.get("ada", made.id) == made
    everything = list_query({})
    assert await files.list("ada", everything) == ([made], False)
    assert await files.list("bob", everything) == ([], False)
    for ask in (files.get, files.download, files.delete):
        with pytest.raises(NotFound, match="No such File object"):
            await ask("bob", made.id)
    with pytest.raises(NotFound):
        files.check("bob", made.id)
    with pytest.raises(NotFound):
        await files.list("bob", list_query({"after": made.id}))
    files.check("ada", made.id)


async def test_the_limits_of_an_owner_are_his_own(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    for _ in range(3):
        await files.add("ada", upload())
    with pytest.raises(InvalidRequest) as refusal:
        await files.add("ada", upload())
    assert refusal.value.code == "too_many_files"
    with pytest.raises(InvalidRequest) as refusal:
        await files.add("bob", upload(b"x" * (3 * PART + 1)))
    assert refusal.value.code == "storage_limit_exceeded"
    await files.add("bob", upload(b"x" * 3 * PART))
    [parts] = await database.read(lambda c: c.execute("SELECT count(*) FROM contents").fetchone())
    assert parts == 6, "nothing is left of what was refused"


async def test_an_expired_file_is_gone_before_it_is_removed(database: FilesDatabase) -> None:
    forgotten: list[str] = []

    async def forget(file_ids: Sequence[str]) -> None:
        forgotten.extend(file_ids)

    files = UploadedFiles(database, Limits())
    made = await files.add("", upload(seconds=3600))
    stays = await files.add("", upload())
    assert made.expires_at == made.created_at + 3600
    await database.write(
        lambda c: c.execute("UPDATE files SET expires_at = ? WHERE seq = 1", (time.time() - 1,))
    )
    with pytest.raises(NotFound):
        await files.get("", made.id)
    assert await files.list("", list_query({})) == ([stays], False)
    with files.forgotten_by(forget):
        await files.remove_expired()
    await files.remove_expired()
    assert forgotten == [made.id] * 2, "before and after"
    [left] = await database.read(lambda c: c.execute("SELECT count(*) FROM contents").fetchone())
    assert left == 1


async def test_a_removal_that_fails_removes_nothing(database: FilesDatabase) -> None:
    async def fail(file_ids: Sequence[str]) -> None:
        raise RuntimeError

    files = UploadedFiles(database, Limits())
    made = await files.add("", upload())
    with files.forgotten_by(fail), pytest.raises(RuntimeError):
        await files.delete("", made.id)
    assert (await sent(await files.download("", made.id)))[1] == b"abc"


async def test_a_file_is_read_within_a_limit_by_its_owner(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    content = b"x" * PART + b"end"
    made = await files.add("ada", upload(content))
    assert await files.read("ada", made.id, max_bytes=len(content)) == content
    with pytest.raises(PayloadTooLarge, match=f"limit of {PART}"):
        await files.read("ada", made.id, max_bytes=PART)
    with pytest.raises(NotFound):
        await files.read("bob", made.id, max_bytes=PART * 2)
    assert await files.find("ada", [made.id, "file-none"]) == {made.id: made}
    assert await files.find("bob", [made.id]) == {}


async def test_of_two_deletions_one_finds_the_file(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    made = await files.add("", upload())

    async def delete_first(file_ids: Sequence[str]) -> None:
        await database.write(lambda c: c.execute("DELETE FROM files"))

    with files.forgotten_by(delete_first), pytest.raises(NotFound):
        await files.delete("", made.id)


async def test_a_file_is_adopted_once_whatever_the_limits(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    for _ in range(3):
        await files.add("ada", upload())
    made = FileObject(
        id="file-old", bytes=3, created_at=7, expires_at=None, filename="a.txt", purpose="vision"
    )
    for content in (b"old", b"new"):
        await files.adopt("ada", made, io.BytesIO(content))
    assert await files.get("ada", "file-old") == made
    assert await files.read("ada", "file-old", max_bytes=9) == b"old"


async def test_the_served_files_are_those_of_the_event_loop(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    assert uploaded_files() is None
    with files.serving():
        assert uploaded_files() is files

        async def elsewhere() -> UploadedFiles | None:
            return uploaded_files()

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is None
    assert uploaded_files() is None


numbers = st.none() | st.integers(1, 8)


@given(numbers, numbers, st.integers(1, 9), st.booleans())
def test_a_page_is_a_part_of_the_list(
    after: int | None, before: int | None, limit: int, descending: bool
) -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE things (seq INTEGER PRIMARY KEY, id TEXT, owner TEXT)")
    rows = [(number, f"t{number}", "ab"[number % 2]) for number in range(1, 9)]
    connection.executemany("INSERT INTO things VALUES (?, ?, ?)", rows)

    def find(thing: str, param: str) -> sqlite3.Row:
        row: sqlite3.Row = connection.execute(
            "SELECT seq FROM things WHERE id = ?", (thing,)
        ).fetchone()
        return row

    query = ListQuery(
        after=None if after is None else f"t{after}",
        before=None if before is None else f"t{before}",
        limit=limit,
        descending=descending,
        chosen=None,
    )
    found, more = page(connection, "things", "owner = ?", ["a"], query, find)
    connection.close()
    ordered = sorted((n for n, _, owner in rows if owner == "a"), reverse=descending)
    sign = -1 if descending else 1
    between = [
        n
        for n in ordered
        if (after is None or sign * n > sign * after)
        and (before is None or sign * n < sign * before)
    ]
    shown = between[-limit:] if before is not None and after is None else between[:limit]
    assert [row["seq"] for row in found] == shown
    assert more == (len(between) > limit)


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "", "1.5", "٣", "9" * 5000])
async def test_a_limit_is_a_number_in_its_range(limit: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        list_query({"limit": limit})
    assert refusal.value.param == "limit"
    assert len(refusal.value.message) < 300


async def test_a_database_is_migrated_once_and_by_one(tmp_path: Path) -> None:
    first = "CREATE TABLE a (x);\nINSERT INTO a VALUES (1)"
    second = "ALTER TABLE a ADD COLUMN y"
    opened(tmp_path, first).close()

    async def once() -> None:
        (await asyncio.to_thread(opened, tmp_path, first, second)).close()

    await asyncio.gather(*(once() for _ in range(8)))
    database = opened(tmp_path, first, second)
    rows = await database.read(lambda c: [tuple(row) for row in c.execute("SELECT * FROM a")])
    database.close()
    assert rows == [(1, None)]
    with pytest.raises(ConfigurationError, match=r"x\.path: .* of another version"):
        opened(tmp_path, first)
    with pytest.raises(ConfigurationError, match=r"x\.path: .* no such module: none"):
        FilesDatabase(
            tmp_path / "other.sqlite3",
            (first,),
            name="The files",
            setting="x.path",
            check="CREATE VIRTUAL TABLE temp.probe USING none(text)",
        )


async def test_a_folder_is_made_for_the_gateways_user_alone(tmp_path: Path) -> None:
    opened(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


async def test_what_fails_is_rolled_back_and_told(database: FilesDatabase) -> None:
    def write(connection: sqlite3.Connection) -> None:
        write_content(connection, 1, io.BytesIO(b"of no file"))

    with pytest.raises(StoreUnavailable, match=r"The files cannot be reached now \(FOREIGN KEY"):
        await database.write(write)
    assert database.now(lambda c: part_of(c, 1, 0)) == b""


async def test_a_download_reads_one_part_at_a_time(database: FilesDatabase) -> None:
    asked: list[int] = []

    def read(connection: sqlite3.Connection, number: int) -> bytes:
        asked.append(number)
        return b"abc"

    app = Download(database, read, filename="a", size=9)
    messages = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal messages
        messages += 1
        assert len(asked) <= messages

    await app({}, None, send)
    assert asked == [0, 1, 2]


async def test_a_file_that_is_written_in_parts_belongs_to_nobody_until_it_is_finished(
    database: FilesDatabase,
) -> None:
    files = UploadedFiles(database, Limits())
    content = [b"a" * (PART + 7), b"", b"b" * 5]
    async with files.growing() as file:
        for each in content:
            await file.append(each)
            await files.add("bob", upload())  # others write in between
            await files.delete("bob", (await files.list("bob", list_query({})))[0][0].id)
            for owner in ("", "ada", "b''"):
                assert await files.list(owner, list_query({})) == ([], False)
        await file.finish("ada", "file-1", filename="f", purpose="batch_output", seconds=3600)
    [made], _ = await files.list("ada", list_query({}))
    assert (made.id, made.expires_at) == ("file-1", made.created_at + 3600)
    assert (await sent(await files.download("ada", "file-1")))[1] == b"".join(content)


async def test_a_finished_file_stays_if_its_writer_is_cancelled_before_it_knows(
    database: FilesDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = UploadedFiles(database, Limits())
    finished = asyncio.Event()
    write = database.write

    async def cancelled_write(work: Any) -> Any:
        await write(work)
        monkeypatch.undo()
        finished.set()
        await asyncio.Event().wait()

    async def written() -> None:
        async with files.growing() as file:
            await file.append(b"abc")
            monkeypatch.setattr(database, "write", cancelled_write)
            await file.finish("ada", "file-1", filename="f", purpose="x", seconds=None)

    writing = asyncio.create_task(written())
    await finished.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert (await sent(await files.download("ada", "file-1")))[1] == b"abc"


async def test_a_file_that_is_not_finished_is_removed(database: FilesDatabase) -> None:
    files = UploadedFiles(database, Limits())
    with pytest.raises(ZeroDivisionError):
        async with files.growing() as file:
            await file.append(b"abc")
            raise ZeroDivisionError
    # A second one with the same id is not made.
    for content in (b"first", b"second"):
        async with files.growing() as file:
            await file.append(content)
            await file.finish("ada", "file-1", filename="f", purpose="x", seconds=None)
    assert (await sent(await files.download("ada", "file-1")))[1] == b"first"
    # Nor is one that was removed meanwhile, because it took too long.
    async with files.growing() as file:
        await file.append(b"abc")
        await database.write(lambda c: c.execute("UPDATE files SET expires_at = 1 WHERE bytes = 0"))
        await files.remove_expired()
        with pytest.raises(StoreUnavailable, match="removed"):
            await file.append(b"d")
        with pytest.raises(StoreUnavailable, match="removed"):
            await file.finish("ada", "file-2", filename="f", purpose="x", seconds=None)
    [parts] = await database.read(lambda c: c.execute("SELECT count(*) FROM contents").fetchone())
    assert parts == 1
