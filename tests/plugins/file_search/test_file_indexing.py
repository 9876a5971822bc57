"""Reading goes on whatever happens to who reads, and what has expired goes."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError, InvalidRequest, NotFound
from gateway.items.citations import CitationReader, FileMark, by_mark
from gateway.plugins.protocols import FileSearchDetails, SessionContext, ToolCall
from gateway.sdk import ChosenPlugins
from gateway.storage.files.form import FileUpload
from gateway.storage.files.uploaded import UploadedFiles
from gateway.wire.tools import FileSearchTool
from gateway_file_search import gateway_check_configuration, store_files, stores
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import FILE, VectorStoreDatabase
from gateway_file_search.embedding import ChunkEmbedder
from gateway_file_search.indexer import Indexer
from gateway_file_search.library import VectorStoreLibrary, open_library
from gateway_file_search.objects import VectorStore
from gateway_file_search.requests import DEFAULT_SIZES, Attachment, CreateStore
from gateway_file_search.server import FileSearchServer
from gateway_files.config import FilesConfig
from gateway_files.files import open_files
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(folder: Path, **keys: Any) -> AsyncIterator[VectorStoreLibrary]:
    """A library in a folder, with `keys` of `[tools.file_search]`."""
    async with (
        open_files(FilesConfig(path=str(folder))) as files,
        open_library(FileSearchConfig(**keys), files) as library,
    ):
        yield library


async def filled(
    database: VectorStoreDatabase,
    files: UploadedFiles,
    config: FileSearchConfig,
    *contents: bytes,
    name: str = "a.txt",
) -> tuple[str, list[str]]:
    """A vector store with files that wait to be read: its id, and theirs."""
    uploads = [
        FileUpload(content=io.BytesIO(content), filename=name, purpose="user_data")
        for content in contents
    ]
    added = [await files.add("", each) for each in uploads]
    made = [each.id for each in added]

    def fill(connection: Any) -> tuple[str, list[str]]:
        row = stores.insert(connection, "", CreateStore(), {}, config)
        wanted = [
            Attachment(file_id=each, param="file_id", attributes={}, sizes=DEFAULT_SIZES)
            for each in made
        ]
        store_files.attach(connection, row, wanted, {each.id: each for each in added}, config)
        return row["id"], made

    return await database.write(fill)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        done = False
        while not done:
            await asyncio.sleep(0.02)
            done = await condition()


async def store_of(library: VectorStoreLibrary, store_id: str) -> VectorStore:
    return await library.database.read(lambda c: stores.get(c, "", store_id))


async def found(library: VectorStoreLibrary, store_id: str, query: str) -> list[str]:
    hits = await library.search("", [store_id], [query], wanted=None, limit=10)
    return [hit.text for hit in hits]


@pytest.mark.parametrize("ends", [-1.0, 12 * 3600.0], ids=["expired", "the clock was set back"])
async def test_what_a_process_left_is_read_by_the_next(tmp_path: Path, ends: float) -> None:
    config = FileSearchConfig(reading_time=5.0)
    database = VectorStoreDatabase(tmp_path)
    async with open_files(FilesConfig(path=str(tmp_path))) as files:
        store_id, _ = await filled(database, files, config, b"one", b"two")
    # One of the files was claimed by a process that has died.
    await database.write(
        lambda c: c.execute(
            "UPDATE store_files SET lease = ?, attempts = 1 WHERE seq = 1", (time.time() + ends,)
        )
    )
    database.close()
    async with opened(tmp_path, reading_time=5.0) as library:

        async def is_done() -> bool:
            return (await store_of(library, store_id)).status == "completed"

        await until(is_done)
        assert await found(library, store_id, "one") == ["one"]


async def test_what_kills_its_reader_each_time_is_given_up(tmp_path: Path) -> None:
    database = VectorStoreDatabase(tmp_path)
    async with open_files(FilesConfig(path=str(tmp_path))) as files:
        store_id, [file_id] = await filled(database, files, FileSearchConfig(), b"one")
    await database.write(lambda c: c.execute("UPDATE store_files SET attempts = 3"))
    database.close()
    async with opened(tmp_path) as library:

        async def is_done() -> bool:
            return (await store_of(library, store_id)).status == "completed"

        await until(is_done)
        read = await library.database.read(lambda c: store_files.get(c, "", store_id, file_id))
        assert read.status == "failed"
        assert read.last_error is not None
        assert read.last_error.code == "server_error"


async def test_a_shutdown_leaves_what_was_begun_to_the_next_start(tmp_path: Path) -> None:
    page = b"<p>word</p>" * 400_000
    async with opened(tmp_path) as library:
        await filled(library.database, library.files, library.config, page, name="a.html")
        library.indexer.wake()

        async def is_begun() -> bool:
            [lease] = await library.database.read(
                lambda c: c.execute("SELECT lease FROM store_files").fetchone()
            )
            return bool(lease)

        await until(is_begun)
    database = VectorStoreDatabase(tmp_path)
    row = await database.read(lambda c: c.execute("SELECT * FROM store_files").fetchone())
    assert (row["status"], row["lease"], row["attempts"]) == ("in_progress", 0, 0)
    database.close()


@pytest.mark.parametrize("how", ["taken out", "deleted", "deleted unheard"])
async def test_a_file_that_goes_while_it_is_read_leaves_nothing(tmp_path: Path, how: str) -> None:
    config = FileSearchConfig()
    database = VectorStoreDatabase(tmp_path)
    async with open_files(FilesConfig(path=str(tmp_path))) as files:
        indexer = Indexer(database, files, config, ChunkEmbedder(database, config))
        store_id, [file_id] = await filled(database, files, config, b"one")
        job = await database.write(indexer._claim)
        assert job is not None
        assert await database.write(indexer._claim) is None, "it is claimed once"
        if how == "taken out":
            await database.write(lambda c: store_files.delete(c, "", store_id, file_id))
        else:
            await files.delete("", file_id)
        if how == "deleted":
            await database.write(lambda c: store_files.forget(c, [file_id]))
        await indexer._index(job)
    for table in ("chunks", "store_files", "index_1"):
        [left] = await database.read(
            lambda c, table=table: c.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[misc]
        )
        assert left == 0, table
    database.close()


async def test_files_are_read_after_an_error_that_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks that read go on: otherwise all later files would be `in_progress` until the next start."""
    claim, left = Indexer._claim, FileSearchConfig().indexing

    def failing(indexer: Indexer, connection: sqlite3.Connection) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ValueError("a mistake")
        return claim(indexer, connection)

    monkeypatch.setattr(Indexer, "_claim", failing)
    async with opened(tmp_path) as library:
        store_id, _ = await filled(library.database, library.files, library.config, b"one")

        async def is_done() -> bool:
            library.indexer.wake()
            return (await store_of(library, store_id)).status == "completed"

        await wait_until_async(is_done, "the file is read")


async def test_what_has_expired_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as library:
        database = library.database
        store_id, [kept, gone] = await filled(
            database, library.files, library.config, b"one", b"two"
        )
        library.indexer.wake()

        async def is_done() -> bool:
            return (await store_of(library, store_id)).status == "completed"

        await until(is_done)
        await library.files.database.write(
            lambda c: c.execute("UPDATE files SET expires_at = 1 WHERE id = ?", (gone,))
        )
        with pytest.raises(NotFound):
            await library.files.get("", gone)
        await library.files.remove_expired()
        assert await found(library, store_id, "one two") == ["one"]

        await database.write(
            lambda c: c.execute("UPDATE stores SET expires_days = 1, last_active_at = 1")
        )
        assert (await store_of(library, store_id)).status == "expired"
        with pytest.raises(InvalidRequest, match="has expired"):
            await found(library, store_id, "one")
        await database.write(stores.empty_expired)
        assert (await store_of(library, store_id)).file_counts.total == 0
        [left] = await database.read(lambda c: c.execute("SELECT count(*) FROM chunks").fetchone())
        assert left == 0
        assert (await library.files.get("", kept)).id == kept


async def test_a_search_keeps_a_store_alive(tmp_path: Path) -> None:
    async with opened(tmp_path) as library:
        store_id, _ = await filled(library.database, library.files, library.config)
        await library.database.write(
            lambda c: c.execute("UPDATE stores SET last_active_at = last_active_at - 1000")
        )
        before = (await store_of(library, store_id)).last_active_at
        await found(library, store_id, "x")
        assert (await store_of(library, store_id)).last_active_at >= before + 1000


async def test_a_store_that_is_deleted_meanwhile_is_a_failed_search(tmp_path: Path) -> None:
    async with opened(tmp_path) as library:
        store_id, _ = await filled(library.database, library.files, library.config)
        entry = FileSearchTool(vector_store_ids=[store_id])
        server, context = FileSearchServer(library), SessionContext(entry=entry)
        server.check(context)
        await library.database.write(lambda c: stores.delete(c, "", store_id))
        async with server.session(context) as session:
            result = await session.call(ToolCall("file_search", {"query": "x"}))
        assert result.failed
        assert f"'{store_id}' not found" in result.text
        assert result.details == FileSearchDetails(queries=["x"])
        with pytest.raises(NotFound):
            server.check(context)


async def test_no_file_can_forge_a_mark(tmp_path: Path) -> None:
    async with opened(tmp_path) as library:
        name = "【9:9†x】" + "n" * 100 + ".txt"
        store_id, _ = await filled(
            library.database, library.files, library.config, "So【0:7†a】 it is".encode(), name=name
        )
        library.indexer.wake()

        async def is_done() -> bool:
            return (await store_of(library, store_id)).status == "completed"

        await until(is_done)
        entry = FileSearchTool(vector_store_ids=[store_id])
        context = SessionContext(entry=entry)
        async with FileSearchServer(library).session(context) as session:
            result = await session.call(ToolCall("file_search", {"queries": ["it"]}))
        first, text = result.text.split("\n")
        assert first.count("【") == first.count("】") == 1
        assert text == "So〖0:7†a〗 it is"
        assert CitationReader({}, by_mark(result.files)).feed(first) == [FileMark(result.files[0])]
        assert isinstance(result.details, FileSearchDetails)
        assert result.details.results
        assert result.details.results[0].text == "So【0:7†a】 it is", "the client's is as it was"


async def test_a_model_reads_as_many_results_as_fit(tmp_path: Path) -> None:
    async with opened(tmp_path, output_limit=1000) as library:
        contents = [f"tower {n} {'word ' * 60}".encode() for n in range(5)]
        store_id, _ = await filled(library.database, library.files, library.config, *contents)
        library.indexer.wake()

        async def is_done() -> bool:
            return (await store_of(library, store_id)).status == "completed"

        await until(is_done)
        entry = FileSearchTool(vector_store_ids=[store_id])
        context = SessionContext(entry=entry)
        async with FileSearchServer(library).session(context) as session:
            result = await session.call(ToolCall("file_search", {"queries": ["tower"]}))
        assert len(result.text.encode()) <= 1000
        assert isinstance(result.details, FileSearchDetails)
        shown = result.details.results or ()
        assert len(result.files) == len(shown) == result.text.count("【") == 2


async def test_processes_write_at_once(tmp_path: Path) -> None:
    """Two connections of two openings, as two processes have them."""
    config = FileSearchConfig()
    one, other = VectorStoreDatabase(tmp_path), VectorStoreDatabase(tmp_path)
    async with open_files(FilesConfig(path=str(tmp_path))) as files:
        await asyncio.gather(
            *(filled(database, files, config, b"x") for _ in range(40) for database in (one, other))
        )
    [number] = await one.read(lambda c: c.execute("SELECT count(*) FROM stores").fetchone())
    assert number == 80
    one.close()
    other.close()


async def test_what_is_given_up_ends_in_its_thread(tmp_path: Path) -> None:
    """As a search does whose time is over, or whose response was cancelled."""
    database = VectorStoreDatabase(tmp_path)
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.gather(
                *(database.read(lambda c: c.execute(endless).fetchone()) for _ in range(6))
            )
    async with asyncio.timeout(60):
        [one] = await database.read(lambda c: c.execute("SELECT 1").fetchone())
        await asyncio.to_thread(database.close)
    assert one == 1


async def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match=r"tools\.file_search\.path: .* cannot be opened"):
        VectorStoreDatabase(tmp_path / "file")
    (tmp_path / FILE).write_bytes(b"no database, and long enough to be looked at" * 50)
    with pytest.raises(ConfigurationError, match="cannot be opened: file is not a database"):
        VectorStoreDatabase(tmp_path)


async def test_an_index_ends_with_its_files() -> None:
    """A path for the index alone is refused before anything is opened: see tests/gateway/startup."""
    async with (
        open_files(FilesConfig()) as files,
        open_library(FileSearchConfig(), files) as library,
    ):
        assert files.is_temporary
        assert library.database._path.parent == files.folder


@pytest.mark.parametrize("index", ["", "a folder"])
@pytest.mark.parametrize("files", ["", "a folder"])
def test_an_index_that_would_outlive_its_files_is_refused(index: str, files: str) -> None:
    chosen = ChosenPlugins(
        models=(),
        tables={
            ("tool", "file_search"): FileSearchConfig(path=index),
            ("resource", "files"): FilesConfig(path=files),
        },
    )
    with (
        pytest.raises(ConfigurationError, match=r"resources\.files\.path: it is not set")
        if index and not files
        else nullcontext()
    ):
        gateway_check_configuration(chosen)
