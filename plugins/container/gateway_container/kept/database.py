"""The SQLite file: connections in threads of their own, off the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from gateway.errors import ConfigurationError, StoreUnavailable

T = TypeVar("T")

FILE: Final = "containers.sqlite3"
_THREADS: Final = 4
_BUSY_SECONDS: Final = 15.0
_VERSION: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE containers (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, "
    "name TEXT NOT NULL, created_at REAL NOT NULL, active_at REAL NOT NULL, minutes INTEGER NOT NULL, memory TEXT, "
    "made_by TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 0, starts INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX containers_of_owner ON containers (owner, seq)",
    "CREATE TABLE files (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, container INTEGER NOT NULL "
    "REFERENCES containers (seq) ON DELETE CASCADE, path TEXT NOT NULL, bytes INTEGER NOT NULL, created_at REAL NOT NULL, "
    "source TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0, UNIQUE (container, path))",
    "CREATE TABLE contents (file INTEGER NOT NULL REFERENCES files (seq) ON DELETE CASCADE, part INTEGER NOT NULL, "
    "data BLOB NOT NULL, UNIQUE (file, part))",
)


class Database:
    """Runs functions with a connection, each in a transaction."""

    def __init__(self, folder: Path) -> None:
        """Makes what is not there. Raises `ConfigurationError`."""
        self._path = folder / FILE
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="containers")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (folder / "opening").open("w") as opening:
                # SQLite does not wait where two processes set the journal's mode at once.
                fcntl.flock(opening, fcntl.LOCK_EX)
                self._run(_prepare, "IMMEDIATE")
        except (OSError, StoreUnavailable) as error:
            self.close()
            raise ConfigurationError(
                f"resources.containers.path: {str(self._path)!r} cannot be opened: {error.__cause__ or error}."
            ) from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, which sees the file as it is at one moment. Raises `StoreUnavailable` where SQLite fails."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._run, work, "DEFERRED"
        )

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Likewise; what `work` has written is undone where it raises."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._run, work, "IMMEDIATE"
        )

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, in this very thread: for a look at a few rows by their keys, which waits for no writer."""
        return self._run(work, "DEFERRED")

    def close(self) -> None:
        """Waits for what is running."""
        self._threads.shutdown()
        for connection in self._opened:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T], kind: str) -> T:
        try:
            connection = self._connection()
            connection.execute(f"BEGIN {kind}")
            try:
                done = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(
                f"The containers cannot be reached now ({error}). Retry later."
            ) from error
        return done

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is not None:
            return known
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._opened.append(connection)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is in it
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        self._local.connection = connection
        return connection


def _prepare(connection: sqlite3.Connection) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"it is of another version of this plugin ({version})")
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
