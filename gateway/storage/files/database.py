"""SQLite databases. Their connections are used in separate threads, off the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.base.shares import FairThreads
from gateway.storage.files import shrinking

logger = logging.getLogger("gateway.storage.files")

T = TypeVar("T")
Check: TypeAlias = Callable[[], None]

_THREADS: Final = 4
_MAX_LONG: Final = 64
"""Maximum number of waiting long reads per owner."""
_BUSY_SECONDS: Final = 15.0
_STEPS: Final = 100_000
"""SQLite virtual machine steps (a few milliseconds) between checks for cancellation."""


_READ_SECONDS: Final = 2.0
"""Interval in seconds between attempts to cut a write-ahead log that is being read. Each attempt delays writers."""


class DatabaseFile:
    """The file of an SQLite database. Detects that the file was removed or replaced while it is in use."""

    def __init__(self, path: Path) -> None:
        """The file must exist."""
        self._path = path
        self._identity = _identity(path)

    def check(self) -> None:
        """Raise `sqlite3.OperationalError` if the path leads to no file any more, or to another file.

        SQLite would continue to use the open file, which is deleted when the process ends: acknowledged writes would be
        lost. It would also apply the write-ahead log of this file to a new file at the path.
        """
        found = _identity(self._path)
        if found is None:
            raise sqlite3.OperationalError("the file was removed")
        if found != self._identity:
            raise sqlite3.OperationalError(
                "the file was replaced while it was in use; stop all servers that use it, remove its -wal and -shm, and start them"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode number of the file at `path`; None if there is no file."""
    try:
        found = os.stat(path)  # takes half the time of `Path.stat`
    except OSError:
        return None
    return found.st_dev, found.st_ino


class ReadTooLong(Exception):
    """A long read has exceeded its time limit."""


class FilesDatabase:
    """Runs functions with a connection, each in a transaction. Several processes may share the database.

    The space of deleted rows is given back to the file system.
    """

    def __init__(
        self,
        path: Path,
        versions: Sequence[str],
        *,
        name: str,
        setting: str,
        check: str = "",
    ) -> None:
        """Create or migrate the database at `path`, and create missing folders. Raises `ConfigurationError`.

        `versions` contains the statements that migrate each version of the database to the next, separated by `;` at
        the end of a line. `name` ("The files") and `setting` (the configuration key of the folder) are used in
        messages. `check` contains statements that fail if SQLite lacks a required feature.
        """
        self._path = path
        self._name = name
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._shrinker = ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-shrinking")
        self._shrinks = False
        """Whether a run of `_shrink` is scheduled and has not begun."""
        self._cuts_from = 0.0
        """Time from which the write-ahead log may be cut again, by the monotonic clock."""
        self._closing = False
        self._threads = FairThreads(_THREADS, thread_name_prefix=path.stem)
        self._long_threads = FairThreads(
            _THREADS, thread_name_prefix=f"{path.stem}-long", max_waiting=_MAX_LONG
        )
        self._file: DatabaseFile | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (path.parent / "opening").open("ab") as opening:
                # SQLite does not wait if two processes set the journal mode at the same time.
                fcntl.flock(opening, fcntl.LOCK_EX)
                self._run(lambda connection: _migrate(connection, versions, check), "IMMEDIATE")
                shrinking.convert(self._connection(), path)
            self._file = DatabaseFile(path)
        except (OSError, StoreUnavailable) as error:
            self.close()
            raise ConfigurationError(
                f"{setting}: {str(path)!r} cannot be opened: {error.__cause__ or error}."
            ) from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which sees a consistent snapshot and must not write. Returns its result. Cancelling the task
        stops it.

        Raises `StoreUnavailable` if SQLite fails.
        """
        return await self._watched(lambda connection, check: work(connection), None)

    async def read_long(
        self, work: Callable[[sqlite3.Connection, Check], T], *, seconds: float
    ) -> T:
        """Like `read`, for work whose time depends on the request, such as a search. It runs in separate threads, which
        are shared fairly between owners, so that it does not delay other work.

        `work` must call its second argument regularly while it does anything other than run statements. Raises
        `ReadTooLong` after `seconds`, not counting the time in the queue, and `ShareExceeded` if too many long reads of
        the owner wait.
        """
        return await self._watched(work, seconds)

    async def _watched(
        self, work: Callable[[sqlite3.Connection, Check], T], seconds: float | None
    ) -> T:
        cancelled = threading.Event()

        def watched(connection: sqlite3.Connection) -> T:
            end = math.inf if seconds is None else time.monotonic() + seconds

            def is_over() -> bool:
                return cancelled.is_set() or time.monotonic() > end

            def check() -> None:
                if is_over():
                    raise ReadTooLong

            connection.set_progress_handler(is_over, _STEPS)
            try:
                return work(connection, check)
            except sqlite3.OperationalError:
                check()
                raise
            finally:
                connection.set_progress_handler(None, 0)

        threads = self._threads if seconds is None else self._long_threads
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(threads, self._run, watched, "DEFERRED")
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, for work that writes. Its changes are rolled back if it raises. Cancelling the task does not
        stop it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._write, work)

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, but blocking, in the calling thread: for looking up a few rows by key. Does not wait for
        writers."""
        return self._run(work, "DEFERRED")

    def close(self) -> None:
        """Wait for running work, and close all connections."""
        self._closing = True
        self._threads.shutdown()
        self._long_threads.shutdown()
        self._shrinker.shutdown()
        for connection in self._opened:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T], kind: _Kind) -> T:
        try:
            if self._file is not None:
                self._file.check()
            with transaction(self._connection(), kind) as connection:
                return work(connection)
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(
                f"{self._name} cannot be reached now ({error}). Retry later."
            ) from error

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        result = self._run(work, "IMMEDIATE")
        # The write is committed, and must not fail because of this. Submitting raises while the
        # database is being closed.
        with suppress(sqlite3.Error, OSError, RuntimeError):
            cuts = time.monotonic() >= self._cuts_from
            if not self._shrinks and shrinking.is_due(self._connection(), self._path, log=cuts):
                self._shrinks = True
                self._shrinker.submit(self._shrink)
        return result

    def _shrink(self) -> None:
        self._shrinks = False
        try:
            if self._file is not None:
                self._file.check()
            shrinking.shrink_database(self._connection(), self._path, lambda: self._closing)
            if shrinking.is_log_large(self._path):
                self._cuts_from = time.monotonic() + _READ_SECONDS
        except sqlite3.Error as error:  # will be tried again after the next write
            logger.debug("%s: free space could not be given back: %s", self._path, error)

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is not None:
            return known
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._opened.append(connection)
        connection.row_factory = sqlite3.Row
        shrinking.prepare(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        self._local.connection = connection
        return connection


_Kind = Literal["DEFERRED", "IMMEDIATE"]


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: _Kind = "IMMEDIATE"
) -> Iterator[sqlite3.Connection]:
    """Run a transaction. An immediate one takes the write lock at its beginning, so that it never has to be
    restarted."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if (
            connection.in_transaction
        ):  # false if SQLite rolled it back, because the disk is full for example
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection, versions: Sequence[str], check: str) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(versions):
        raise sqlite3.DatabaseError(f"it is of another version of this plugin ({version})")
    for changes in (*versions[version:], check):
        # One by one: `executescript` would commit the transaction.
        for statement in changes.split(";\n"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(versions)}")
