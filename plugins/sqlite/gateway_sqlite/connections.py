"""Connections to the file, and running operations on them."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway_sql import Operation, Statement

T = TypeVar("T")

_CAST = re.compile(r"::(?:double precision|\w+)(?:\[\])?")
_ANY = re.compile(r"= ANY\((\$\d+)\)")
_LOCK = re.compile(r" FOR (?:UPDATE|SHARE)(?: SKIP LOCKED)?\b")
PAGE_CACHE: Final = -8192
"""Page cache of each connection: 8 MiB."""
WAL_BYTES: Final = 64 << 20
"""Size in bytes to which the write-ahead log is truncated after it was written back to the database."""


_INSERTION = re.compile(r"(INSERT INTO [^?]* VALUES )\((\?\d+(?:, \?\d+)*)\)([^?]*)")
"""An insertion of one row, whose parameters are exactly the values of the row."""
_ROWS: Final = (32, 8, 2)
"""Numbers of rows that one statement inserts. There are only a few, because the connection keeps each statement
prepared."""


@lru_cache(1024)
def translated(sql: str) -> str:
    """A statement in SQLite's dialect, without locks on rows: SQLite has only one writer at a time."""
    sql = _CAST.sub("", sql)
    sql = _ANY.sub(r"IN (SELECT value FROM json_each(\1))", sql)
    return _LOCK.sub("", sql).replace("$", "?")


def connect(path: Path, *, timeout: float, synchronous: str, read_only: bool) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time. The file must exist: it is not created."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        connection.execute(f"PRAGMA cache_size = {PAGE_CACHE}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        connection.execute(f"PRAGMA query_only = {int(read_only)}")
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    """Run an operation within the open transaction. Returns its result."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(_execute(connection, statement))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()


def _execute(connection: sqlite3.Connection, statement: Statement) -> list[Any]:
    sql = translated(statement.sql)
    if statement.each:
        _execute_each(connection, sql, statement.parameters)
        return []
    parameters = [
        json.dumps(each) if isinstance(each, list) else each for each in statement.parameters
    ]
    return connection.execute(sql, parameters).fetchall()


def _execute_each(connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement for each row. Insertions of several rows are combined.

    This reduces the number of SQLite's statements. For each, this thread releases the interpreter's lock, and may have
    to wait for the event loop's thread to get it back.
    """
    at = 0
    for number in _ROWS:
        if len(rows) - at < number:
            continue
        several = for_rows(sql, number)
        if several is None:
            break
        while len(rows) - at >= number:
            connection.execute(several, list(chain.from_iterable(rows[at : at + number])))
            at += number
    if at < len(rows):
        connection.executemany(sql, rows[at:] if at else rows)


@lru_cache(1024)
def for_rows(sql: str, number: int) -> str | None:
    """Convert an insertion of one row to an insertion of `number` rows. None if the statement is not such an
    insertion."""
    found = _INSERTION.fullmatch(sql)
    if found is None:
        return None
    before, parameters, after = found.groups()
    columns = parameters.count("?")
    if parameters != ", ".join(f"?{each}" for each in range(1, columns + 1)):
        return None
    row = f"({', '.join('?' * columns)})"
    return f"{before}{', '.join([row] * number)}{after}"
