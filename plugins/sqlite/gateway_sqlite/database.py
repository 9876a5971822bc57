"""The database of this process: one writing thread, and reading threads, which run concurrently."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.sdk.files import DatabaseFile
from gateway.sdk.processes import FairThreads, Shares
from gateway_sql import Operation, Statement
from gateway_sqlite.config import SqliteConfig
from gateway_sqlite.connections import connect, run
from gateway_sqlite.peers import Peers
from gateway_sqlite.writer import MAX_WAITING, SqliteWriter, unavailable

T = TypeVar("T")

_WELL_SECONDS: Final = 1.0
"""Seconds after a committed transaction in which the database counts as healthy without a test."""


class SqliteDatabase:
    """Implements `gateway_sql.SqlDatabase` for the processes of one machine."""

    def __init__(self, path: Path, config: SqliteConfig) -> None:
        """The file must exist."""
        self._path = path
        self._config = config
        self._file = DatabaseFile(path)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._readers = FairThreads(config.readers, thread_name_prefix="sqlite-reader")
        self._reads = Shares(MAX_WAITING)
        self._writer = SqliteWriter(
            path,
            lambda: self._connect(read_only=False),
            self._file.check,
            timeout=config.timeout,
        )
        self.peers: Peers | None = None

    async def close(self) -> None:
        """Wait for running operations, and close all connections. If it is cancelled while operations run, they are
        completed, and the connections are closed nevertheless."""
        try:
            await self._writer.close()
        finally:
            await asyncio.to_thread(self._close_readers)

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        async with self._reads.slot():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, self._read, operation)

    def write(self, operation: Callable[[], Operation[T]]) -> Coroutine[Any, Any, T]:
        return self._writer.write(operation)

    def now(self) -> float:
        return time.time()

    def announce(self, names: Collection[str]) -> None:
        if self.peers is not None:
            self.peers.announce(names)

    async def health(self) -> None:
        """Test the database. After a failed transaction, writes to the file. Within a second after a committed one,
        only checks that the file is still there. Otherwise, reads from the file."""
        if self._writer.failing:
            await self.write(_probe)
        elif time.monotonic() - self._writer.committed_at < _WELL_SECONDS:
            try:
                self._file.check()
            except sqlite3.Error as error:
                raise unavailable("write", error) from error
        else:
            await self.read(_nothing)

    def _read(self, operation: Callable[[], Operation[T]]) -> T:
        try:
            self._file.check()
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect(read_only=True)
                self._opened.append(connection)
            connection.execute("BEGIN")
            try:
                return run(connection, operation())
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise unavailable("read", error) from error

    def _close_readers(self) -> None:
        self._readers.shutdown()
        for connection in self._opened:
            connection.close()

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        return connect(
            self._path,
            timeout=self._config.timeout,
            synchronous=self._config.synchronous,
            read_only=read_only,
        )


def _nothing() -> Operation[None]:
    yield Statement("SELECT 1")


def _probe() -> Operation[None]:
    """Insert a row, and delete it."""
    yield Statement("INSERT INTO cancels (id, at) VALUES ('', 0)")
    yield Statement("DELETE FROM cancels WHERE id = '' AND at = 0")
