"""Giving the space of SQLite databases back to the file system: free pages, and write-ahead logs that have grown."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

logger = logging.getLogger("gateway.storage.files")

WAL_BYTES: Final = 16 << 20
"""Size in bytes to which a write-ahead log is cut. A log grows to the size of the largest transaction: a large file."""
FREE_PAGES: Final = 1024
"""Number of free pages that a database may keep for later use."""
_PAGES_AT_ONCE: Final = 1000
"""Maximum number of free pages that one transaction gives back. Other writers wait for it."""
_PAUSE_SECONDS: Final = 0.02
"""Seconds between two such transactions, in which other writers can take the lock."""
_READERS_SECONDS: Final = 0.1
"""Seconds to wait for readers of the write-ahead log. Writers wait as well."""
CONVERTED_BYTES: Final = 256 << 20
"""Maximum size in bytes of a database of an earlier version that is converted when it is opened."""


def prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection, before its first statement that writes."""
    if not _value(
        connection, "page_count"
    ):  # in a database with pages, this would write and so wait for writers
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")


def convert(connection: sqlite3.Connection, path: Path) -> None:
    """Rewrite a database of an earlier version, so that it can give free pages back. Does nothing if it already can. A
    database that is large, in use or on a full disk is not changed."""
    try:
        if _value(connection, "auto_vacuum"):
            return
        if _value(connection, "page_count") * _value(connection, "page_size") > CONVERTED_BYTES:
            logger.info(
                "%s is of an earlier version and does not shrink when files are deleted. While no server runs, "
                "`sqlite3 %s 'PRAGMA auto_vacuum = INCREMENTAL; VACUUM'` writes it anew.", path, path,
            )  # fmt: skip
            return
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        logger.warning("%s could not be written anew, and does not shrink: %s", path, error)


def is_due(connection: sqlite3.Connection, path: Path, *, log: bool) -> bool:
    """Whether `shrink_database` has work to do. The write-ahead log counts only if `log` is set. Takes microseconds."""
    return (log and is_log_large(path)) or _may_shrink(connection)


def is_log_large(path: Path) -> bool:
    """Whether the write-ahead log of the database at `path` exceeds `WAL_BYTES`."""
    return _log_size(path) > WAL_BYTES


def shrink_database(
    connection: sqlite3.Connection, path: Path, stopped: Callable[[], bool]
) -> None:
    """Give back free pages of the database at `path`, in many short transactions, and cut its write-ahead log. Ends
    soon after `stopped` returns True.

    `connection` must not be in a transaction. Only databases that were created with `PRAGMA auto_vacuum = INCREMENTAL`
    can give pages back. Raises `sqlite3.Error`.
    """
    shrunk = False
    while _may_shrink(connection) and not stopped():
        # `execute` would give back one page: the statement yields a row without columns for each
        # page.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        shrunk = True
        time.sleep(_PAUSE_SECONDS)
    if shrunk or is_log_large(path):
        before = _value(connection, "busy_timeout")
        connection.execute(f"PRAGMA busy_timeout = {int(_READERS_SECONDS * 1000)}")
        try:
            # Only this makes the database file shorter. While there are readers, it may have no
            # effect.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {before}")


def _may_shrink(connection: sqlite3.Connection) -> bool:
    return (
        _value(connection, "freelist_count") > FREE_PAGES
        and _value(connection, "auto_vacuum") == 2  # incremental
    )


def _log_size(path: Path) -> int:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:  # there may be no log
        return 0


def _value(connection: sqlite3.Connection, pragma: str) -> int:
    [value] = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)
