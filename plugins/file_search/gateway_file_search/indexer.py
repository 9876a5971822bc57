"""Reading the files of vector stores into their indexes, in the background."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec import Struct

from gateway.errors import StoreUnavailable
from gateway_file_search import files, stores
from gateway_file_search.chunks import Chunk, chunked
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import Database
from gateway_file_search.extraction import ReadingFailure, text_of
from gateway_file_search.objects import StaticSizes
from gateway_file_search.search import add_chunks, remove_chunks

logger = logging.getLogger("gateway.file_search")

_LOOK_SECONDS: Final = 5.0
"""How often a process looks for what another has left."""
_SWEEP_SECONDS: Final = 60.0
_LEASE_MARGIN: Final = 60.0
_MOST_ATTEMPTS: Final = 3
_AT_ONCE: Final = 256
"""Chunks of one transaction, between which others may write."""


class Job(Struct, frozen=True, kw_only=True):
    """A file to be read, which is this process's until its lease ends."""

    number: int
    """Of the file in its store."""
    store: int
    file: int
    filename: str
    sizes: StaticSizes
    lease: float
    attempts: int


class Indexer:
    """Reads what is in progress; whoever has added something wakes it."""

    def __init__(self, database: Database, config: FileSearchConfig) -> None:
        self._database = database
        self._config = config
        self._lease_seconds = config.reading_time + _LEASE_MARGIN
        self._woken = asyncio.Event()
        self._mine: dict[int, float] = {}
        """The leases of the files that are being read here."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read until left; what was begun then is left to be read by others, or after the next start."""
        tasks = [asyncio.create_task(self._sweep())]
        tasks += [asyncio.create_task(self._work()) for _ in range(self._config.indexing)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            left = list(self._mine.items())
            await self._database.write(
                lambda connection: connection.executemany(
                    "UPDATE store_files SET lease = 0, attempts = attempts - 1 WHERE seq = ? AND lease = ?",
                    left,
                )
            )

    def wake(self) -> None:
        """There is something to read."""
        self._woken.set()

    async def _work(self) -> None:
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

    def _claim(self, connection: sqlite3.Connection) -> Job | None:
        now = time.time()
        row = connection.execute(
            "UPDATE store_files SET lease = ?, attempts = attempts + 1 WHERE seq = (SELECT seq FROM store_files "
            "WHERE status = 'in_progress' AND lease < ? ORDER BY seq LIMIT 1) RETURNING *",
            (now + self._lease_seconds, now),
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
            lease=row["lease"],
            attempts=row["attempts"],
        )

    async def _index(self, job: Job) -> None:
        self._mine[job.number] = job.lease
        try:
            if job.attempts > _MOST_ATTEMPTS:
                await self._fail(
                    job, "server_error", "The server stopped each time as it read the file."
                )
                return
            content = await self._database.read(lambda c: files.content(c, job.file))
            text = await text_of(content, job.filename, self._config)
            chunks = await asyncio.to_thread(chunked, text, job.sizes)
            await self._keep(job, chunks)
        except ReadingFailure as failure:
            await self._fail(job, failure.code, str(failure))
        except StoreUnavailable:
            raise
        except Exception:
            # Whatever a file does to its reader must not end the reading of others.
            logger.exception("file_search: a file could not be indexed")
            await self._fail(job, "server_error", "The server failed as it read the file.")
        del self._mine[job.number]

    async def _keep(self, job: Job, chunks: Sequence[Chunk]) -> None:
        for first in range(0, len(chunks), _AT_ONCE):
            some = [(each.start, each.text) for each in chunks[first : first + _AT_ONCE]]
            if not await self._database.write(
                lambda c, first=first, some=some: self._add(c, job, first, some)  # type: ignore[misc]
            ):
                return  # it was taken out of its store meanwhile
        used = sum(len(each.text.encode()) for each in chunks)
        await self._database.write(
            lambda c: c.execute(
                "UPDATE store_files SET status = 'completed', usage_bytes = ? "
                "WHERE seq = ? AND status = 'in_progress' AND lease = ?",
                (used, job.number, job.lease),
            )
        )

    def _add(
        self, connection: sqlite3.Connection, job: Job, first: int, chunks: list[tuple[int, str]]
    ) -> bool:
        if not _is_wanted(connection, job):
            return False
        if first == 0:  # what an earlier attempt has left
            remove_chunks(connection, job.store, job.number)
        add_chunks(connection, job.store, job.number, first, chunks)
        return True

    async def _fail(self, job: Job, code: str, message: str) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            if _is_wanted(connection, job):
                remove_chunks(connection, job.store, job.number)
                connection.execute(
                    "UPDATE store_files SET status = 'failed', error_code = ?, error_message = ? WHERE seq = ?",
                    (code, message, job.number),
                )

        await self._database.write(fail)


def _is_wanted(connection: sqlite3.Connection, job: Job) -> bool:
    """Whether the file is still to be read, and by us."""
    return (
        connection.execute(
            "SELECT 1 FROM store_files WHERE seq = ? AND status = 'in_progress' AND lease = ?",
            (job.number, job.lease),
        ).fetchone()
        is not None
    )
