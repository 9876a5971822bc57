"""The writing thread. Operations that arrive at about the same time share a transaction."""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.sdk import StoreUnavailable
from gateway.sdk.files import shrink_database
from gateway.sdk.processes import Shares
from gateway_sql import Operation
from gateway_sql.responses import Put, insert_all
from gateway_sqlite.connections import run

logger = logging.getLogger("gateway_sqlite")

T = TypeVar("T")

_MAX_BATCH: Final = 256
"""Maximum number of operations in one transaction."""
_ITERATIONS: Final = 4
"""Maximum number of iterations of the event loop for which a batch waits for further operations."""
_OF_ONE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
)
"""Errors that concern one operation only, not the other operations of its transaction."""
_LAST_RESPONSE: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'responses'"
"""A query for the largest row number that a response has ever had."""
_SHRINK_SECONDS: Final = 60.0
"""Interval in seconds at which the writer gives free pages back to the file system, if no operations wait."""
MAX_WAITING: Final = 2048
"""Maximum number of operations that are queued or running. Further ones wait for a place."""


class _Job:
    """An operation and its outcome."""

    __slots__ = ("error", "operation", "result")

    def __init__(self, operation: Callable[[], Operation[Any]]) -> None:
        self.operation = operation
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, connection: sqlite3.Connection) -> bool:
        """Run the operation within a transaction. Returns whether it succeeded. Raises errors that do not concern this
        operation alone."""
        self.error = None
        try:
            self.result = run(connection, self.operation())
        except _OF_ONE as error:
            self.error = unavailable("write", error)
        except sqlite3.Error:
            raise
        except BaseException as error:
            self.error = error
        return self.error is None


class _Write(_Job):
    """A job with the future on which its caller waits. `owner` holds its place in the queue."""

    __slots__ = ("future", "owner")

    def __init__(
        self, operation: Callable[[], Operation[Any]], future: asyncio.Future[Any], owner: str
    ) -> None:
        super().__init__(operation)
        self.future = future
        self.owner = owner

    def settle(self) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteWriter:
    """Runs operations in the order in which they are queued. Each is acknowledged once it is committed.

    The event loop gathers operations while a transaction runs, and then for as long as each of its next iterations adds
    some. The thread gets them as one batch, and runs the batch in one transaction: handing over, committing and
    acknowledging take the same time for one operation and for many.
    """

    def __init__(
        self,
        path: Path,
        open_connection: Callable[[], sqlite3.Connection],
        check: Callable[[], None],
        *,
        timeout: float,
    ) -> None:
        """`path` is the path of the database file. `open_connection` is called in the thread, and again after each
        failed transaction. `check` is called before each transaction; it raises `sqlite3.Error` if writing is not
        allowed. `timeout` is the maximum time in seconds to wait for a place in the queue."""
        self._path = path
        self._open = open_connection
        self._check = check
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._gathered: list[_Write] = []
        self._gathering = False
        """Whether operations are gathered, or a transaction runs."""
        self._closed = False
        self._last_size = 1
        """Number of operations in the last batch. If it is 1, the next operation is handed over without waiting for
        others."""
        self._batches: queue.SimpleQueue[list[_Write] | None] = queue.SimpleQueue()
        self._writes = Shares(MAX_WAITING)
        self._shrinks = time.monotonic() + _SHRINK_SECONDS
        self.failing = False
        """Whether the last transaction failed."""
        self.committed_at = -math.inf
        """Time at which the last transaction was committed, by the monotonic clock."""
        self._thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation. Returns its result once it is committed. Raises `StoreUnavailable` if the writer is closed
        before the operation has a place in the queue."""
        owner = self._writes.take_free()
        if owner is None:
            owner = await self._wait_for_place()
        if self._closed:
            self._writes.leave(owner)
            raise StoreUnavailable("The store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._gathered.append(_Write(operation, future, owner))
        if not self._gathering:
            self._gathering = True
            if self._last_size == 1:
                self._hand_over()
            else:
                self._loop.call_soon(self._gather, 1, _ITERATIONS)
        return await future

    async def close(self) -> None:
        """Run all operations that have a place in the queue, and close the connection. Those that wait for a place are
        rejected, as are all later ones."""
        self._closed = True
        while self._gathered:
            self._hand_over()
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _wait_for_place(self) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._writes.take()
        except TimeoutError:
            raise StoreUnavailable(
                f"The store is too slow: {MAX_WAITING} writes are waiting. Retry, or send store: false."
            ) from None

    # In the event loop.

    def _gather(self, known: int, iterations: int) -> None:
        """Hand over the gathered operations. If their number has grown since it was `known`, more may come: wait for
        the next iteration of the event loop first, at most `iterations` times."""
        number = len(self._gathered)
        if known < number < _MAX_BATCH and iterations:
            self._loop.call_soon(self._gather, number, iterations - 1)
        elif number:
            self._hand_over()
        else:  # `close` has handed them over
            self._gathering = False

    def _hand_over(self) -> None:
        batch = self._gathered[:_MAX_BATCH]
        del self._gathered[:_MAX_BATCH]
        self._last_size = len(batch)
        self._batches.put(batch)

    def _settle(self, batch: list[_Write]) -> None:
        """Pass the results of a batch to its callers. The transaction has ended."""
        self._writes.leave_all(job.owner for job in batch)
        for job in batch:
            job.settle()
        if self._gathered:
            self._loop.call_soon(self._gather, len(self._gathered), _ITERATIONS)
        else:
            self._gathering = False

    # In the thread.

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._run(batch)
            try:
                self._loop.call_soon_threadsafe(self._settle, batch)
            except RuntimeError:  # the loop was closed, and no caller waits any more
                logger.debug("%d results of the store were not needed any more", len(batch))
            self._shrink()
        self._close()

    def _run(self, batch: Sequence[_Job]) -> None:
        """Run operations in one transaction. Operations that raise are rolled back."""
        try:
            self._check()
            if self._connection is None:
                self._connection = self._open()
            if not _run_together(self._connection, batch):
                # The whole batch was rolled back, so each operation can be run again.
                _run_apart(self._connection, batch)
            if any(job.error is None for job in batch):
                self.committed_at = time.monotonic()
            self.failing = False
        except BaseException as error:
            # Nothing of the batch is stored. SQLite may have rolled back the transaction by itself,
            # or be unable to: a new connection begins in a known state.
            self._close()
            self.failing = True
            if not isinstance(error, sqlite3.Error):
                logger.exception("the store's writer failed")
            for job in batch:
                job.error = unavailable("write", error)

    def _shrink(self) -> None:
        """Give free pages back and truncate the write-ahead log, once in each `_SHRINK_SECONDS`."""
        if self._connection is None or time.monotonic() < self._shrinks:
            return
        self._shrinks = time.monotonic() + _SHRINK_SECONDS
        try:
            shrink_database(
                self._connection,
                self._path,
                lambda: bool(self._gathered) or not self._batches.empty(),
            )
        except sqlite3.Error as error:
            logger.debug("free pages could not be given back: %s", error)
        except Exception:
            logger.exception("free pages could not be given back")
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                logger.debug("a connection could not be closed: %s", error)
            self._connection = None


def _run_together(connection: sqlite3.Connection, batch: Sequence[_Job]) -> bool:
    """Run operations in one transaction. If one of them fails, rolls it back and returns False."""
    connection.execute("BEGIN IMMEDIATE")
    for puts, jobs in groupby(batch, key=_simple_put):
        run_all = _insert if puts else _run_each
        if not run_all(connection, list(jobs)):
            connection.execute("ROLLBACK")
            return False
    connection.execute("COMMIT")
    return True


def _simple_put(job: _Job) -> bool:
    return isinstance(job.operation, Put) and job.operation.simple


def _run_each(connection: sqlite3.Connection, jobs: Sequence[_Job]) -> bool:
    """Run operations, up to the first one that fails. Returns whether all succeeded."""
    return all(job.run(connection) for job in jobs)


def _insert(connection: sqlite3.Connection, jobs: Sequence[_Job]) -> bool:
    """Store responses, by a few statements for all of them if all are new. Returns False if one cannot be stored."""
    [[last]] = connection.execute(_LAST_RESPONSE)
    puts = [job.operation for job in jobs if isinstance(job.operation, Put)]
    together = _Job(lambda: insert_all(puts, last))
    if not together.run(connection):
        # One may be stored already. SQLite has undone only the statement that failed.
        connection.execute("DELETE FROM items WHERE response > ?", (last,))
        connection.execute("DELETE FROM responses WHERE num > ?", (last,))
        return _run_each(connection, jobs)
    for job in jobs:
        job.result = True
    return True


def _run_apart(connection: sqlite3.Connection, batch: Sequence[_Job]) -> None:
    """Run operations in one transaction, each within a savepoint. Those that fail are rolled back. Takes longer than
    `_run_together`: for a savepoint, SQLite copies the pages that the operation changes."""
    connection.execute("BEGIN IMMEDIATE")
    for job in batch:
        connection.execute("SAVEPOINT operation")
        if not job.run(connection):
            connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
    connection.execute("COMMIT")


def unavailable(what: str, error: BaseException) -> StoreUnavailable:
    """The error for a failure of SQLite."""
    failure = StoreUnavailable(
        f"The store cannot {what} now (SQLite: {error}). Retry, or send store: false."
    )
    failure.__cause__ = error
    return failure
