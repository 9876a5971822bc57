"""The SQLite file: connections in threads of their own, one per thread, off the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from gateway.errors import ConfigurationError, StoreUnavailable

T = TypeVar("T")

FILE: Final = "file_search.sqlite3"
_THREADS = 4
_BUSY_SECONDS = 15.0
_STEPS = 100_000
"""Of SQLite's machine, a few milliseconds, after which it looks whether its work is still wanted."""
_VERSIONS = (
    """
CREATE TABLE files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL, expires_at INTEGER);
CREATE INDEX files_of_owner ON files (owner, seq);
CREATE TABLE contents (
    file INTEGER NOT NULL REFERENCES files (seq) ON DELETE CASCADE, part INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (file, part));
CREATE TABLE stores (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT, metadata TEXT NOT NULL, created_at INTEGER NOT NULL, last_active_at INTEGER NOT NULL,
    expires_days INTEGER);
CREATE INDEX stores_of_owner ON stores (owner, seq);
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    store INTEGER NOT NULL REFERENCES stores (seq) ON DELETE CASCADE, created_at INTEGER NOT NULL);
CREATE TABLE store_files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL REFERENCES stores (seq) ON DELETE CASCADE,
    file INTEGER NOT NULL REFERENCES files (seq), batch INTEGER, created_at INTEGER NOT NULL, attributes TEXT NOT NULL,
    chunk_tokens INTEGER NOT NULL, overlap_tokens INTEGER NOT NULL, status TEXT NOT NULL, error_code TEXT,
    error_message TEXT, usage_bytes INTEGER NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, UNIQUE (store, file));
CREATE INDEX store_files_of_file ON store_files (file);
CREATE INDEX store_files_of_batch ON store_files (batch);
CREATE INDEX store_files_to_read ON store_files (lease) WHERE status = 'in_progress';
CREATE TABLE chunks (id INTEGER PRIMARY KEY, start INTEGER NOT NULL, text TEXT NOT NULL);
""",
    """
CREATE TABLE spaces (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, dimensions INTEGER NOT NULL, probe BLOB NOT NULL,
    chosen INTEGER NOT NULL);
CREATE TABLE vectors (chunk INTEGER PRIMARY KEY, space INTEGER NOT NULL, data BLOB NOT NULL);
ALTER TABLE store_files ADD COLUMN space INTEGER;
CREATE INDEX store_files_by_space ON store_files (space) WHERE status = 'completed';
""",
)
"""What makes each version of the file of the one before."""


class Database:
    """Runs functions with a connection, each in a thread. Processes may share the file."""

    def __init__(self, folder: Path) -> None:
        """Makes what is not there. Raises `ConfigurationError`."""
        self._path = folder / FILE
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="file_search")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with transaction(self._connection()) as connection:
                _prepare(connection)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise ConfigurationError(
                f"tools.file_search.path: {str(self._path)!r} cannot be opened: {error}."
            ) from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives. Raises `StoreUnavailable` where SQLite fails."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Likewise, in a transaction that is undone where `work` raises."""

        def within(connection: sqlite3.Connection) -> T:
            with transaction(connection):
                return work(connection)

        return await self.read(within)

    async def snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Likewise, seeing the file as it is at one moment; writes nothing. Cancelling it ends the work in its thread."""
        given_up = threading.Event()

        def within(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            connection.set_progress_handler(given_up.is_set, _STEPS)
            try:
                return work(connection)
            finally:
                connection.set_progress_handler(None, 0)
                connection.execute("ROLLBACK")

        try:
            return await self.read(within)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, in this very thread: for a look at a few rows by their keys, which waits for no writer."""
        return self._run(work)

    def close(self) -> None:
        """Waits for what is running."""
        self._threads.shutdown()
        for connection in self._opened:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connection())
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(
                f"The files cannot be reached now ({error}). Retry later."
            ) from error

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is not None:
            return known
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._opened.append(connection)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        self._local.connection = connection
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that may write from its beginning, so that it never has to be begun anew."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _prepare(connection: sqlite3.Connection) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(_VERSIONS):
        raise sqlite3.DatabaseError(f"it is of another version of this plugin ({version})")
    for changes in _VERSIONS[version:]:
        # `executescript` would end the transaction.
        for statement in changes.split(";\n"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(_VERSIONS)}")
    connection.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(text)")
    connection.execute("DROP TABLE temp.probe")
