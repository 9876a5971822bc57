"""Files in databases of earlier versions, which kept them beside the vector stores, are moved."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.storage.files.contents import PART
from gateway.storage.files.uploaded import FileObject
from gateway_file_search import database, store_files
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.library import VectorStoreLibrary, open_library
from gateway_files.config import FilesConfig
from gateway_files.files import Files, open_files

pytestmark = pytest.mark.anyio
CONTENT = b"A tower. " * 50_000


@pytest.fixture(params=[1, 2])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the database of an earlier version: a file in a vector store, one of another owner, and an empty one."""
    old = sqlite3.connect(tmp_path / database.FILE)
    old.executescript("".join(database._VERSIONS[: request.param]))
    old.execute(f"PRAGMA user_version = {request.param}")
    insert = "INSERT INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) VALUES (?, ?, ?, 7, ?, 'vision', ?)"
    for at, (file, owner, content) in enumerate(
        [("file-a", "ada", CONTENT), ("file-b", "bob", b"bob's"), ("file-c", "ada", b"")], 1
    ):
        old.execute(insert, (file, owner, len(content), f"{file}.txt", 2**40 if at == 2 else None))
        for number in range(0, len(content), PART):
            part = content[number : number + PART]
            old.execute("INSERT INTO contents VALUES (?, ?, ?)", (at, number // PART, part))
    old.execute("INSERT INTO stores (id, owner, name, metadata, created_at, last_active_at) VALUES ('vs_1', 'ada', 'one', '{}', 7, 7)")  # fmt: skip
    old.execute("INSERT INTO store_files (store, file, created_at, attributes, chunk_tokens, overlap_tokens, status, usage_bytes) VALUES (1, 1, 7, '{}', 800, 400, 'completed', 8)")  # fmt: skip
    old.executescript(
        "CREATE VIRTUAL TABLE index_1 USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2');"
    )
    old.commit()
    old.close()
    return tmp_path


async def check(library: VectorStoreLibrary, files: Files) -> None:
    """The old files are there, and only there."""
    assert await files.read("ada", "file-a", max_bytes=10**6) == CONTENT
    assert await files.read("bob", "file-b", max_bytes=10**6) == b"bob's"
    assert await files.read("ada", "file-c", max_bytes=10**6) == b""
    told = await files.get("bob", "file-b")
    assert (told.filename, told.created_at, told.expires_at, told.purpose) == (
        "file-b.txt", 7, 2**40, "vision",
    )  # fmt: skip
    [left] = await library.database.read(
        lambda c: c.execute("SELECT count(*) FROM contents").fetchone()
    )
    assert left == 0
    kept = await library.database.read(lambda c: store_files.get(c, "ada", "vs_1", "file-a"))
    assert kept.status == "completed"


async def test_they_are_moved_once_with_their_ids(folder: Path) -> None:
    for _ in range(2):
        async with (
            open_files(FilesConfig(path=str(folder))) as files,
            open_library(FileSearchConfig(), files) as library,
        ):
            await check(library, files)


async def test_a_move_that_was_cut_off_goes_on_elsewhere(folder: Path, tmp_path: Path) -> None:
    other = FilesConfig(path=str(tmp_path / "files"))
    async with open_files(other) as files:
        made = FileObject(
            id="file-a", bytes=len(CONTENT), created_at=7, expires_at=None, filename="file-a.txt", purpose="vision"
        )  # fmt: skip
        await files.adopt("ada", made, io.BytesIO(CONTENT))  # and the process died
    async with (
        open_files(other) as files,
        open_library(FileSearchConfig(path=str(folder)), files) as library,
    ):
        await check(library, files)


async def test_a_deleted_file_leaves_its_old_vector_store_and_does_not_come_back(
    folder: Path,
) -> None:
    config = FilesConfig(path=str(folder))
    for turn in range(2):
        async with (
            open_files(config) as files,
            open_library(FileSearchConfig(), files) as library,
        ):
            if turn == 0:
                await files.delete("ada", "file-a")
            assert await files.find("ada", ["file-a", "file-c"]) == {
                "file-c": await files.get("ada", "file-c")
            }
            [left] = await library.database.read(
                lambda c: c.execute("SELECT count(*) FROM store_files").fetchone()
            )
            assert left == 0


async def test_they_are_not_moved_to_a_temporary_folder(folder: Path) -> None:
    async with open_files(FilesConfig()) as files:
        with pytest.raises(ConfigurationError, match="has uploaded files of an earlier version"):
            async with open_library(FileSearchConfig(path=str(folder)), files):
                pass
        assert await files.find("ada", ["file-a"]) == {}
