"""Indexes the files of vector stores in the background."""

# ruff: noqa: S608 (statements are composed only of our own conditions; values are bound)

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeVar

from msgspec import Struct

from gateway.sdk import DeadlineExceeded, GatewayError, NotFound, StoreUnavailable
from gateway.sdk.documents import ReadingFailure
from gateway.sdk.files import UploadedFiles
from gateway_file_search import store_files, stores, vectors
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import VectorStoreDatabase
from gateway_file_search.embedding import ChunkEmbedder
from gateway_file_search.extraction import chunks_of, new_reader
from gateway_file_search.objects import StaticSizes
from gateway_file_search.stored_chunks import add_chunks, remove_chunks

logger = logging.getLogger("gateway.file_search")

_LOOK_SECONDS: Final = 5.0
"""Interval between scans for files that another process has left, in seconds."""
_SWEEP_SECONDS: Final = 60.0
_LEASE_MARGIN: Final = 60.0
_MAX_ATTEMPTS: Final = 3
_AT_ONCE: Final = 256
"""Maximum number of chunks per transaction, so that others may write in between."""
_EMBEDDING_SECONDS: Final = 120.0
"""Time limit for one batch of chunks."""
_PAUSES: Final = (1.0, 30.0)
"""Pause after the first failure of a model, and the maximum pause, in seconds."""
_LATER_SECONDS: Final = 3600.0
"""Seconds after which renewing vectors is retried if it failed."""

T = TypeVar("T")


class IndexJob(Struct, kw_only=True):
    """A file to index, leased to this process; or, if it is completed, a file to embed again."""

    number: int
    """The number of the file in its store."""
    store: int
    owner: str
    file_id: str
    filename: str
    bytes: int
    """The size of the file."""
    sizes: StaticSizes
    status: Literal["in_progress", "completed"]
    lease: float
    """Expiry of the lease; extended with every batch."""
    attempts: int


class JobLost(Exception):
    """The file was removed, or another process has taken it over."""


class Indexer:
    """Indexes files that are in progress. Whoever adds a file calls `wake`."""

    def __init__(
        self,
        database: VectorStoreDatabase,
        files: UploadedFiles,
        config: FileSearchConfig,
        embedding: ChunkEmbedder,
    ) -> None:
        self._database = database
        self._files = files
        self._config = config
        self._embedding = embedding
        self._lease_seconds = max(config.reading_time, _EMBEDDING_SECONDS) + _LEASE_MARGIN
        self._set_back = 2 * max(_LATER_SECONDS, self._lease_seconds)
        """A lease that ends later than so many seconds from now was made before the clock was set back."""
        self._woken = asyncio.Event()
        self._reader = new_reader(config)
        self._mine: dict[int, IndexJob] = {}
        """Files that this process is indexing."""
        self._served: dict[str, int] = {}
        """The turn in which a file of each owner was last read by this process."""
        self._turns = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the indexer until the context is left. Unfinished files are left to other processes, or to the next
        start."""
        tasks = [asyncio.create_task(self._sweep())]
        tasks += [asyncio.create_task(self._work()) for _ in range(self._config.indexing)]
        if self._embedding.is_configured:
            tasks.append(asyncio.create_task(self._find_space()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._reader.close()
            left = [(job.number, job.lease) for job in self._mine.values()]
            await self._database.write(
                lambda connection: connection.executemany(
                    "UPDATE store_files SET lease = 0, attempts = attempts - (status = 'in_progress') "
                    "WHERE seq = ? AND lease = ?",
                    left,
                )
            )

    def wake(self) -> None:
        """Notify the indexer that there are files to read."""
        self._woken.set()

    async def _work(self) -> None:
        await self._embedding.wait_until_available()
        while True:
            self._woken.clear()
            try:
                job = await self._database.write(self._claim)
                if job is not None:
                    await self._index(job)
                    continue
            except StoreUnavailable as error:
                logger.warning("file_search: %s", error.message)
            except Exception:
                # Without this task no file would be read any more.
                logger.exception("file_search: looking for files to read failed; it continues")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._woken.wait()

    async def _sweep(self) -> None:
        while True:
            try:
                await self._database.write(stores.empty_expired)
            except StoreUnavailable as error:
                logger.warning("file_search: %s", error.message)
            except Exception:
                logger.exception(
                    "file_search: expired stores could not be emptied; it is tried again"
                )
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _find_space(self) -> None:
        """Determine the model's vector space once the model responds. Files embedded in another space are embedded
        again."""
        pause, most = _PAUSES
        while True:
            try:
                number = await self._outdated()
            except GatewayError as error:
                logger.warning("file_search: %s", error.message)
                await asyncio.sleep(pause)
                pause = min(pause * 2, most)
            else:
                break
        if number:
            logger.info(
                "file_search: the vectors of %d files are made anew, by the model %r",
                number,
                self._config.embeddings,
            )
        self.wake()

    async def _outdated(self) -> int:
        """Number of files with vectors that are not in the model's space."""
        space = await self._embedding.space()
        [number] = await self._database.read(
            lambda connection: connection.execute(
                f"SELECT count(*) FROM store_files WHERE {_OUTDATED}", (space, space)
            ).fetchone()
        )
        return int(number)

    def _claim(self, connection: sqlite3.Connection) -> IndexJob | None:
        now = time.time()
        row = None
        if (number := self._next(connection, now)) is not None:
            row = connection.execute(
                "UPDATE store_files SET lease = ?, attempts = attempts + 1 WHERE seq = ? RETURNING *",
                (now + self._lease_seconds, number),
            ).fetchone()
        space = self._embedding.known_space
        # If processes have different models, the one that started last wins; otherwise they would re-embed forever.
        if row is None and space is not None and vectors.is_current(connection, space):
            row = connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = (SELECT seq FROM store_files "
                f"WHERE {_OUTDATED} AND (lease < ? OR lease > ?) LIMIT 1) RETURNING *",
                (now + self._lease_seconds, space, space, now, now + self._set_back),
            ).fetchone()
        if row is None:
            return None
        file = connection.execute(
            "SELECT id, owner, filename, bytes FROM files WHERE seq = ?", (row["file"],)
        ).fetchone()
        return IndexJob(
            number=row["seq"],
            store=row["store"],
            owner=file["owner"],
            file_id=file["id"],
            filename=file["filename"],
            bytes=file["bytes"],
            sizes=StaticSizes(
                max_chunk_size_tokens=row["chunk_tokens"],
                chunk_overlap_tokens=row["overlap_tokens"],
            ),
            status=row["status"],
            lease=row["lease"],
            attempts=row["attempts"],
        )

    def _next(self, connection: sqlite3.Connection, now: float) -> int | None:
        """The next file to read. Owners take turns, so that one who adds thousands of files delays nobody else."""
        set_back = now + self._set_back
        waiting = connection.execute(_WAITING, (now, set_back, now, set_back)).fetchall()
        if not waiting:
            return None
        chosen = min(
            waiting,
            key=lambda row: (row["active"], self._served.get(row["owner"], 0), row["first"]),
        )
        self._turns += 1
        self._served[chosen["owner"]] = self._turns
        first: int = chosen["first"]
        return first

    async def _index(self, job: IndexJob) -> None:
        self._mine[job.number] = job
        try:
            used = await self._read(job) if job.status == "in_progress" else None
            space = await self._embed(job) if self._embedding.is_configured else None
            await self._database.write(lambda c: _complete(c, job, used, space))
        except JobLost:
            pass
        except ReadingFailure as failure:
            await self._fail(job, failure.code, str(failure))
        except StoreUnavailable:
            raise
        except GatewayError as failure:
            await self._fail(
                job,
                "server_error",
                f"The model '{self._config.embeddings}' could not embed the file: {failure.message}",
            )
        except Exception:
            # An unexpected failure of one file must not stop the indexing of others.
            logger.exception("file_search: a file could not be indexed")
            await self._fail(job, "server_error", "The server failed as it read the file.")
        del self._mine[job.number]

    async def _read(self, job: IndexJob) -> int:
        """Index a file's text by words. Returns the size of its chunks in bytes."""
        if job.attempts > _MAX_ATTEMPTS:
            raise ReadingFailure(
                "The server stopped each time as it read the file.", "server_error"
            )
        try:
            content = await self._files.read(job.owner, job.file_id, max_bytes=job.bytes)
        except NotFound:  # deleted between the look-up and the addition to the store
            await self._database.write(lambda c: store_files.forget(c, [job.file_id]))
            raise JobLost from None
        chunks = await chunks_of(content, job.filename, job.sizes, self._reader)
        used = sum(len(each.text.encode()) for each in chunks)
        await self._keep(job, lambda c: _reserve(c, job, used, self._config.max_index_bytes))
        for first in range(0, len(chunks), _AT_ONCE):
            some = [(each.start, each.text) for each in chunks[first : first + _AT_ONCE]]
            await self._keep(job, lambda c, first=first, some=some: _add(c, job, first, some))  # type: ignore[misc]
        return used

    async def _embed(self, job: IndexJob) -> int:
        """Embed the chunks of a file that have no vector of the model. Returns the number of the vector space."""
        space = await self._with_retries(job, self._embedding.space)
        while True:
            some = await self._database.read(
                lambda c: vectors.missing(c, space, job.number, self._config.embedding_batch)
            )
            if not some:
                return space
            texts = [text for _, text in some]
            made = await self._with_retries(
                job,
                lambda texts=texts: self._embedding.of_chunks(texts),  # type: ignore[misc]
            )
            pairs = [(chunk, vector) for (chunk, _), vector in zip(some, made, strict=True)]
            await self._keep(job, lambda c, pairs=pairs: vectors.keep(c, space, pairs))  # type: ignore[misc]

    async def _with_retries(self, job: IndexJob, ask: Callable[[], Awaitable[T]]) -> T:
        """Call a model, with retries after temporary failures. Raises `GatewayError` and `JobLost`."""
        until = time.monotonic() + self._config.embedding_patience
        pause, most = _PAUSES
        while True:
            try:
                async with asyncio.timeout(_EMBEDDING_SECONDS):
                    return await ask()
            except TimeoutError:
                failure: GatewayError = DeadlineExceeded(
                    f"It took longer than {_EMBEDDING_SECONDS:g} seconds."
                )
            except StoreUnavailable:
                raise
            except GatewayError as error:
                failure = error
            if not _is_temporary(failure) or time.monotonic() + pause > until:
                raise failure
            logger.warning("file_search: a file waits for its vectors: %s", failure.message)
            await self._keep(job, lambda c: None)
            await asyncio.sleep(pause)
            pause = min(pause * 2, most)

    async def _keep(self, job: IndexJob, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write data of a file and extend its lease. Raises `JobLost` if the file is no longer wanted."""

        def keep(connection: sqlite3.Connection) -> float:
            lease = time.time() + self._lease_seconds
            found = connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = ? AND status = ? AND lease = ?",
                (lease, job.number, job.status, job.lease),
            )
            if not found.rowcount:
                raise JobLost
            write(connection)
            return lease

        job.lease = await self._database.write(keep)

    async def _fail(self, job: IndexJob, code: str, message: str) -> None:
        """Mark a file that cannot be read as failed. A file that cannot be embedded again stays as it is, and is
        retried later."""

        def fail(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                "UPDATE store_files SET status = 'failed', usage_bytes = 0, error_code = ?, error_message = ? "
                "WHERE seq = ? AND status = 'in_progress' AND lease = ?",
                (code, message, job.number, job.lease),
            )
            if found.rowcount:
                remove_chunks(connection, job.store, job.number)

        def postpone(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = ? AND lease = ?",
                (time.time() + _LATER_SECONDS, job.number, job.lease),
            )

        if job.status == "completed":
            logger.warning("file_search: a file is found by its words alone: %s", message)
        await self._database.write(fail if job.status == "in_progress" else postpone)


_OUTDATED: Final = "status = 'completed' AND (space IS NULL OR space < ? OR space > ?)"
"""Files whose vectors are not in a given space. Written so that SQLite uses an index."""


_WAITING: Final = """
SELECT owner, first, (
    SELECT count(*) FROM store_files JOIN stores ON stores.seq = store
    WHERE status = 'in_progress' AND lease BETWEEN ? AND ? AND stores.owner = waiting.owner) AS active
FROM (
    SELECT min(store_files.seq) AS first, owner FROM store_files JOIN stores ON stores.seq = store
    WHERE status = 'in_progress' AND (lease < ? OR lease > ?) GROUP BY owner) AS waiting"""
"""The first waiting file of each owner, and the number of the owner's files that are being read."""


def _reserve(connection: sqlite3.Connection, job: IndexJob, used: int, most: int) -> None:
    """Reserve a file's text size for its owner. Raises `ReadingFailure` if the limit is exceeded."""
    [others] = connection.execute(
        "SELECT coalesce(sum(usage_bytes), 0) FROM store_files JOIN stores ON stores.seq = store "
        "WHERE owner = (SELECT owner FROM stores WHERE seq = ?) AND store_files.seq != ?",
        (job.store, job.number),
    ).fetchone()
    if others + used > most:
        raise ReadingFailure(
            f"With this file, the text in your vector stores is larger than this server's limit of {most} bytes. Delete "
            "some files, or vector stores.",
            "server_error",
        )
    connection.execute("UPDATE store_files SET usage_bytes = ? WHERE seq = ?", (used, job.number))


def _add(
    connection: sqlite3.Connection, job: IndexJob, first: int, chunks: list[tuple[int, str]]
) -> None:
    if first == 0:  # left over from an earlier attempt
        remove_chunks(connection, job.store, job.number)
    add_chunks(connection, job.store, job.number, first, chunks)


def _complete(
    connection: sqlite3.Connection, job: IndexJob, used: int | None, space: int | None
) -> None:
    connection.execute(
        "UPDATE store_files SET status = 'completed', usage_bytes = coalesce(?, usage_bytes), space = ?, lease = 0 "
        "WHERE seq = ? AND status = ? AND lease = ?",
        (used, space, job.number, job.status, job.lease),
    )


def _is_temporary(failure: GatewayError) -> bool:
    return failure.status >= 500 or failure.status == 429
