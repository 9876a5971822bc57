"""The thread that writes: everything that was asked for meanwhile is one transaction."""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.sdk import StoreUnavailable
from gateway.sdk.files import shrink_database
from gateway.sdk.processes import Shares
from gateway_sql import Operation
from gateway_sqlite.connections import run

logger = logging.getLogger("gateway_sqlite")

T = TypeVar("T")

_AT_ONCE: Final = 256
"""Maximum number of operations in one transaction."""
_OF_ONE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
)
"""Errors of one operation, which leave the others of its transaction as they are."""
_SHRINK_SECONDS: Final = 60.0
"""How often the writer gives free pages back to the file system, as long as nobody waits for it."""
MAX_WAITING: Final = 2048
"""Maximum number of operations in the queue."""


class _Job:
    """An operation, and the future of its result."""

    __slots__ = ("error", "future", "operation", "owner", "result")

    def __init__(
        self, operation: Callable[[], Operation[Any]], future: asyncio.Future[Any], owner: str
    ) -> None:
        self.owner = owner
        self.operation = operation
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteWriter:
    """Runs operations in the order of the calls. Each is acknowledged once it is committed."""

    def __init__(
        self,
        path: Path,
        open_connection: Callable[[], sqlite3.Connection],
        check: Callable[[], None],
        *,
        timeout: float,
    ) -> None:
        """`path` is that of the file. `open_connection` is called in the thread, again after each failure of the disk. `check` is
        called before each transaction; it raises `sqlite3.Error` if nothing may be written."""
        self._path = path
        self._open = open_connection
        self._check = check
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writes = Shares(MAX_WAITING)
        self._shrinks = time.monotonic() + _SHRINK_SECONDS
        self.failing = False
        """Whether the last transaction failed."""
        self.committed_at = -math.inf
        """When the last transaction was committed, by the monotonic clock."""
        self._thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """The result of an operation, once it is committed."""
        try:
            async with asyncio.timeout(self._timeout):
                owner = await self._writes.take()
        except TimeoutError:
            raise StoreUnavailable(
                f"The store is too slow: {MAX_WAITING} writes are waiting. Retry, or send store: false."
            ) from None
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(operation, future, owner))
        return await future

    async def close(self) -> None:
        """Finish what is waiting, and close the connection."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while True:
            batch: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                batch.append(job)
                if len(batch) == _AT_ONCE:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._run(batch)
                self._settle(batch)
                self._shrink()
            if job is None:
                break
        self._close()

    def _run(self, batch: list[_Job]) -> None:
        try:
            self._check()
            if self._connection is None:
                self._connection = self._open()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            alone = len(batch) == 1
            for job in batch:
                if not alone:
                    connection.execute("SAVEPOINT operation")
                try:
                    job.result = run(connection, job.operation())
                except _OF_ONE as error:
                    job.error = unavailable("write", error)
                except sqlite3.Error:
                    raise
                except BaseException as error:
                    job.error = error
                if not alone:
                    if job.error is not None:
                        connection.execute("ROLLBACK TO operation")
                    connection.execute("RELEASE operation")
            if alone and batch[0].error is not None:
                connection.execute("ROLLBACK")
            else:
                connection.execute("COMMIT")
                self.committed_at = time.monotonic()
            self.failing = False
        except BaseException as error:
            # Nothing of this is stored. SQLite may have ended the transaction by itself, or be unable to: a new
            # connection begins in a known state.
            self._close()
            self.failing = True
            if not isinstance(error, sqlite3.Error):
                logger.exception("the store's writer failed")
            for job in batch:
                job.error = unavailable("write", error)

    def _shrink(self) -> None:
        """Give free pages back, now and then, and cut the write-ahead log."""
        if self._connection is None or time.monotonic() < self._shrinks:
            return
        self._shrinks = time.monotonic() + _SHRINK_SECONDS
        try:
            shrink_database(self._connection, self._path, lambda: not self._jobs.empty())
        except sqlite3.Error as error:
            logger.debug("free pages could not be given back: %s", error)

    def _settle(self, batch: list[_Job]) -> None:
        def settle() -> None:
            for job in batch:
                self._writes.leave(job.owner)
                job.settle()

        try:
            batch[0].future.get_loop().call_soon_threadsafe(settle)
        except RuntimeError:  # the loop was closed, and nobody waits any more
            logger.debug("%d results of the store were not needed any more", len(batch))

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                logger.debug("a connection could not be closed: %s", error)
            self._connection = None


def unavailable(what: str, error: BaseException) -> StoreUnavailable:
    """The error for a failure of SQLite."""
    failure = StoreUnavailable(
        f"The store cannot {what} now (SQLite: {error}). Retry, or send store: false."
    )
    failure.__cause__ = error
    return failure
