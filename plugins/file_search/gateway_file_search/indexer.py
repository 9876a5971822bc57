"""Reading the files of vector stores into their indexes, in the background."""

# ruff: noqa: S608 (what is put into statements is a condition of our own; values are bound)

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeVar

from msgspec import Struct

from gateway.errors import DeadlineExceeded, GatewayError, StoreUnavailable
from gateway_file_search import files, stores, vectors
from gateway_file_search.chunks import chunked
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import Database
from gateway_file_search.embedding import Embedding
from gateway_file_search.extraction import ReadingFailure, text_of
from gateway_file_search.objects import StaticSizes
from gateway_file_search.stored_chunks import add_chunks, remove_chunks

logger = logging.getLogger("gateway.file_search")

_LOOK_SECONDS: Final = 5.0
"""How often a process looks for what another has left."""
_SWEEP_SECONDS: Final = 60.0
_LEASE_MARGIN: Final = 60.0
_MOST_ATTEMPTS: Final = 3
_AT_ONCE: Final = 256
"""Chunks of one transaction, between which others may write."""
_EMBEDDING_SECONDS: Final = 120.0
"""For one batch of chunks."""
_PAUSES: Final = (1.0, 30.0)
"""Seconds after the first failure of a model, and the most."""
_LATER_SECONDS: Final = 3600.0
"""After which vectors are tried again that could not be made anew."""

T = TypeVar("T")


class Job(Struct, kw_only=True):
    """A file to be read, which is this process's until its lease ends; or, where it is completed, to be embedded anew."""

    number: int
    """Of the file in its store."""
    store: int
    file: int
    filename: str
    sizes: StaticSizes
    status: Literal["in_progress", "completed"]
    lease: float
    """Grows with every batch."""
    attempts: int


class Lost(Exception):
    """The file is not to be read any more, or by another process."""


class Indexer:
    """Reads what is in progress; whoever has added something wakes it."""

    def __init__(self, database: Database, config: FileSearchConfig, embedding: Embedding) -> None:
        self._database = database
        self._config = config
        self._embedding = embedding
        self._lease_seconds = max(config.reading_time, _EMBEDDING_SECONDS) + _LEASE_MARGIN
        self._woken = asyncio.Event()
        self._mine: dict[int, Job] = {}
        """The files that are being read here."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read until left; what was begun then is left to be read by others, or after the next start."""
        tasks = [asyncio.create_task(self._sweep())]
        tasks += [asyncio.create_task(self._work()) for _ in range(self._config.indexing)]
        if self._embedding.wanted:
            tasks.append(asyncio.create_task(self._find_space()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            left = [(job.number, job.lease) for job in self._mine.values()]
            await self._database.write(
                lambda connection: connection.executemany(
                    "UPDATE store_files SET lease = 0, attempts = attempts - (status = 'in_progress') "
                    "WHERE seq = ? AND lease = ?",
                    left,
                )
            )

    def wake(self) -> None:
        """There is something to read."""
        self._woken.set()

    async def _work(self) -> None:
        await self._embedding.given()
        while True:
            self._woken.clear()
            try:
                job = await self._database.write(self._claim)
                if job is not None:
                    await self._index(job)
                    continue
            except StoreUnavailable as error:
                logger.warning("file_search: %s", error.message)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._woken.wait()

    async def _sweep(self) -> None:
        def sweep(connection: sqlite3.Connection) -> None:
            files.remove_expired(connection)
            stores.empty_expired(connection)

        while True:
            try:
                await self._database.write(sweep)
            except StoreUnavailable as error:
                logger.warning("file_search: %s", error.message)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _find_space(self) -> None:
        """What is embedded already may have to be so anew, which is known once the model has answered."""
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
        """How many files have not all their vectors in the model's space."""
        space = await self._embedding.space()
        [number] = await self._database.read(
            lambda connection: connection.execute(
                f"SELECT count(*) FROM store_files WHERE {_OUTDATED}", (space, space)
            ).fetchone()
        )
        return int(number)

    def _claim(self, connection: sqlite3.Connection) -> Job | None:
        now = time.time()
        row = connection.execute(
            "UPDATE store_files SET lease = ?, attempts = attempts + 1 WHERE seq = (SELECT seq FROM store_files "
            "WHERE status = 'in_progress' AND lease < ? ORDER BY seq LIMIT 1) RETURNING *",
            (now + self._lease_seconds, now),
        ).fetchone()
        space = self._embedding.known_space
        # Of processes whose models differ, the one that began last has its way: they would never come to an end.
        if row is None and space is not None and vectors.is_current(connection, space):
            row = connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = (SELECT seq FROM store_files "
                f"WHERE {_OUTDATED} AND lease < ? LIMIT 1) RETURNING *",
                (now + self._lease_seconds, space, space, now),
            ).fetchone()
        if row is None:
            return None
        file = connection.execute(
            "SELECT filename FROM files WHERE seq = ?", (row["file"],)
        ).fetchone()
        return Job(
            number=row["seq"],
            store=row["store"],
            file=row["file"],
            filename=file["filename"],
            sizes=StaticSizes(
                max_chunk_size_tokens=row["chunk_tokens"],
                chunk_overlap_tokens=row["overlap_tokens"],
            ),
            status=row["status"],
            lease=row["lease"],
            attempts=row["attempts"],
        )

    async def _index(self, job: Job) -> None:
        self._mine[job.number] = job
        try:
            used = await self._read(job) if job.status == "in_progress" else None
            space = await self._embed(job) if self._embedding.wanted else None
            await self._database.write(lambda c: _complete(c, job, used, space))
        except Lost:
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
            # Whatever a file does to its reader must not end the reading of others.
            logger.exception("file_search: a file could not be indexed")
            await self._fail(job, "server_error", "The server failed as it read the file.")
        del self._mine[job.number]

    async def _read(self, job: Job) -> int:
        """Put a file's text into the index of words; the bytes of its chunks."""
        if job.attempts > _MOST_ATTEMPTS:
            raise ReadingFailure(
                "The server stopped each time as it read the file.", "server_error"
            )
        content = await self._database.read(lambda c: files.content(c, job.file))
        text = await text_of(content, job.filename, self._config)
        chunks = await asyncio.to_thread(chunked, text, job.sizes)
        for first in range(0, len(chunks), _AT_ONCE):
            some = [(each.start, each.text) for each in chunks[first : first + _AT_ONCE]]
            await self._keep(job, lambda c, first=first, some=some: _add(c, job, first, some))  # type: ignore[misc]
        return sum(len(each.text.encode()) for each in chunks)

    async def _embed(self, job: Job) -> int:
        """Give vectors to those chunks of a file that have none of the model's; the number of their space."""
        space = await self._patiently(job, self._embedding.space)
        while True:
            some = await self._database.read(
                lambda c: vectors.missing(c, space, job.number, self._config.embedding_batch)
            )
            if not some:
                return space
            texts = [text for _, text in some]
            made = await self._patiently(
                job,
                lambda texts=texts: self._embedding.of_chunks(texts),  # type: ignore[misc]
            )
            pairs = [(chunk, vector) for (chunk, _), vector in zip(some, made, strict=True)]
            await self._keep(job, lambda c, pairs=pairs: vectors.keep(c, space, pairs))  # type: ignore[misc]

    async def _patiently(self, job: Job, ask: Callable[[], Awaitable[T]]) -> T:
        """What a model gives, asked again where its failure may pass. Raises `GatewayError`, and `Lost`."""
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
            if not _may_pass(failure) or time.monotonic() + pause > until:
                raise failure
            logger.warning("file_search: a file waits for its vectors: %s", failure.message)
            await self._keep(job, lambda c: None)
            await asyncio.sleep(pause)
            pause = min(pause * 2, most)

    async def _keep(self, job: Job, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write something of a file, and have it for longer. Raises `Lost` where it is not wanted any more."""

        def keep(connection: sqlite3.Connection) -> float:
            lease = time.time() + self._lease_seconds
            found = connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = ? AND status = ? AND lease = ?",
                (lease, job.number, job.status, job.lease),
            )
            if not found.rowcount:
                raise Lost
            write(connection)
            return lease

        job.lease = await self._database.write(keep)

    async def _fail(self, job: Job, code: str, message: str) -> None:
        """A file that cannot be read is failed; one that cannot be embedded anew stays as it is, for a while."""

        def fail(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                "UPDATE store_files SET status = 'failed', error_code = ?, error_message = ? "
                "WHERE seq = ? AND status = 'in_progress' AND lease = ?",
                (code, message, job.number, job.lease),
            )
            if found.rowcount:
                remove_chunks(connection, job.store, job.number)

        def put_off(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE store_files SET lease = ? WHERE seq = ? AND lease = ?",
                (time.time() + _LATER_SECONDS, job.number, job.lease),
            )

        if job.status == "completed":
            logger.warning("file_search: a file is found by its words alone: %s", message)
        await self._database.write(fail if job.status == "in_progress" else put_off)


_OUTDATED: Final = "status = 'completed' AND (space IS NULL OR space < ? OR space > ?)"
"""Of a file whose vectors are not of a space: in a form that has an index."""


def _add(
    connection: sqlite3.Connection, job: Job, first: int, chunks: list[tuple[int, str]]
) -> None:
    if first == 0:  # what an earlier attempt has left
        remove_chunks(connection, job.store, job.number)
    add_chunks(connection, job.store, job.number, first, chunks)


def _complete(
    connection: sqlite3.Connection, job: Job, used: int | None, space: int | None
) -> None:
    connection.execute(
        "UPDATE store_files SET status = 'completed', usage_bytes = coalesce(?, usage_bytes), space = ?, lease = 0 "
        "WHERE seq = ? AND status = ? AND lease = ?",
        (used, space, job.number, job.status, job.lease),
    )


def _may_pass(failure: GatewayError) -> bool:
    return failure.status >= 500 or failure.status == 429
