"""Connections to the file, and running operations on them."""

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
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
"""Size in bytes to which the write-ahead log is cut after it was written back."""


@lru_cache(1024)
def translated(sql: str) -> str:
    """A statement in SQLite's dialect, without locks on rows: writers take turns anyway."""
    sql = _CAST.sub("", sql)
    sql = _ANY.sub(r"IN (SELECT value FROM json_each(\1))", sql)
    return _LOCK.sub("", sql).replace("$", "?")


def connect(path: Path, *, timeout: float, synchronous: str, read_only: bool) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time. The file must exist: it is not made."""
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
    """Run an operation within the open transaction."""
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
        connection.executemany(sql, statement.parameters)
        return []
    parameters = [
        json.dumps(each) if isinstance(each, list) else each for each in statement.parameters
    ]
    return connection.execute(sql, parameters).fetchall()
