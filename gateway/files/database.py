"""SQLite databases. Their connections run in threads of their own, off the event loop."""

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

from gateway.errors import ConfigurationError, StoreUnavailable
from gateway.files import shrinking
from gateway.shares import FairThreads

logger = logging.getLogger("gateway.files")

T = TypeVar("T")
Check: TypeAlias = Callable[[], None]

_THREADS: Final = 4
_MAX_LONG: Final = 64
"""Number of long reads that one owner may have waiting."""
_BUSY_SECONDS: Final = 15.0
_STEPS: Final = 100_000
"""SQLite virtual machine steps (a few milliseconds) between checks for cancellation."""


_READ_SECONDS: Final = 2.0
"""How long a write-ahead log that somebody reads is left as it is: each attempt to cut it keeps writers waiting."""


class DatabaseFile:
    """The file of an SQLite database, which may be removed or replaced while it is in use."""

    def __init__(self, path: Path) -> None:
        """The file must exist."""
        self._path = path
        self._identity = _identity(path)

    def check(self) -> None:
        """Raise `sqlite3.OperationalError` if there is no file at the path any more, or another one.

        SQLite would go on with the file that is open, whose last name is gone: whatever was acknowledged would be lost with the
        process. It would apply the write-ahead log of that file to another one at the path.
        """
        found = _identity(self._path)
        if found is None:
            raise sqlite3.OperationalError("the file was removed")
        if found != self._identity:
            raise sqlite3.OperationalError(
                "the file was replaced while it was in use; stop all servers that use it, remove its -wal and -shm, and start them"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes the file at `path` from others; None if there is none."""
    try:
        found = os.stat(path)  # half the time of `Path.stat`
    except OSError:
        return None
    return found.st_dev, found.st_ino


class ReadTooLong(Exception):
    """A long read has taken more than its time."""


class FilesDatabase:
    """Runs functions with a connection, each in a transaction. Processes may share the database.

    The space of what is deleted is given back to the disk.
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
        """Create or migrate the database at `path`, and missing folders. Raises `ConfigurationError`.

        `versions` has the statements that migrate each version of the database to the next, separated by `;` at the
        end of a line. `name` ("The files") and `setting` (the configuration key of the folder) are for messages.
        `check` has statements that fail if SQLite lacks what is needed.
        """
        self._path = path
        self._name = name
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._shrinker = ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-shrinking")
        self._shrinks = False
        """Whether the shrinker is asked to run, and has not begun."""
        self._cuts_from = 0.0
        """When the write-ahead log may be cut again, by the monotonic clock."""
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
        """The result of `work`, which sees a consistent snapshot and must not write. Cancelling stops it.

        Raises `StoreUnavailable` if SQLite fails.
        """
        return await self._watched(lambda connection, check: work(connection), None)

    async def read_long(
        self, work: Callable[[sqlite3.Connection, Check], T], *, seconds: float
    ) -> T:
        """Like `read`, for work whose time depends on what a request asks for: a search. Nothing else waits for it, it has turns of
        its own by owner, and it ends after `seconds`, not counting the time until its turn.

        `work` calls its second argument now and then, where it does more than run statements. Raises `ReadTooLong`, and
        `ShareExceeded` if too many of its owner wait.
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
        """Like `read`, for work that writes; changes are rolled back if it raises. Cancelling does not stop it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._write, work)

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, but in the calling thread: for looking up a few rows by key. Does not wait for writers."""
        return self._run(work, "DEFERRED")

    def close(self) -> None:
        """Waits for running work."""
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
        # What has been written stays written, whatever happens here. A database that is being closed takes no more work.
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
        except sqlite3.Error as error:  # the next write tries again
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
    """A transaction. An immediate one takes the write lock at its beginning, so that it never has to be restarted."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled it back itself if the disk is full
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection, versions: Sequence[str], check: str) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(versions):
        raise sqlite3.DatabaseError(f"it is of another version of this plugin ({version})")
    for changes in (*versions[version:], check):
        # `executescript` would commit the transaction.
        for statement in changes.split(";\n"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(versions)}")
