"""Giving the space of SQLite databases back to the disk: pages that are free, and write-ahead logs that have grown."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

logger = logging.getLogger("gateway.files")

WAL_BYTES: Final = 16 << 20
"""Size to which a write-ahead log is cut. It grows to the size of the largest transaction, as of a large file."""
FREE_PAGES: Final = 1024
"""Number of free pages that a database may keep: it uses them again."""
_PAGES_AT_ONCE: Final = 1000
"""Free pages that are given back in one transaction, for which others wait."""
_PAUSE_SECONDS: Final = 0.02
"""How long others may take the lock between two of these."""
_READERS_SECONDS: Final = 0.1
"""How long to wait, and to keep writers waiting, for readers of the write-ahead log."""
CONVERTED_BYTES: Final = 256 << 20
"""The largest database of an earlier version that is written anew when it is opened."""


def prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection, before its first statement that writes."""
    if not _value(connection, "page_count"):  # for others it writes, and so waits for writers
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")


def convert(connection: sqlite3.Connection, path: Path) -> None:
    """Write a database of an earlier version anew, so that it can give free pages back. Does nothing if it can already. One that is large,
    in use or on a full disk is left as it is."""
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
    """Whether `shrink_database` has something to do, with the write-ahead log if `log` is set. Takes microseconds."""
    return (log and is_log_large(path)) or _may_shrink(connection)


def is_log_large(path: Path) -> bool:
    """Whether the write-ahead log of the database at `path` is to be cut."""
    return _log_size(path) > WAL_BYTES


def shrink_database(
    connection: sqlite3.Connection, path: Path, stopped: Callable[[], bool]
) -> None:
    """Give free pages of the database at `path` back, in many short transactions, and cut its write-ahead log. Ends soon after `stopped`.

    `connection` is in no transaction. Only databases that were made with `PRAGMA auto_vacuum = INCREMENTAL` have pages to give back.
    Raises `sqlite3.Error`.
    """
    shrunk = False
    while _may_shrink(connection) and not stopped():
        # `execute` would give back one page: it has a row without columns for each.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        shrunk = True
        time.sleep(_PAUSE_SECONDS)
    if shrunk or is_log_large(path):
        before = _value(connection, "busy_timeout")
        connection.execute(f"PRAGMA busy_timeout = {int(_READERS_SECONDS * 1000)}")
        try:
            # The file itself ends earlier only after this. With readers it does what it can.
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
    except OSError:  # such as there is none
        return 0


def _value(connection: sqlite3.Connection, pragma: str) -> int:
    [value] = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)
