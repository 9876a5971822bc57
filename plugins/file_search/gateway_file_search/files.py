"""Uploaded files, in the database."""

# ruff: noqa: S608 (what is put into statements are names of our own tables and columns; values are bound)

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import IO, Final

from gateway.errors import InvalidRequest, NotFound
from gateway.wire.ids import new_id
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.objects import Deleted, FileObject
from gateway_file_search.requests import ListQuery
from gateway_file_search.stored_chunks import remove_chunks

PART: Final = 1_048_576
"""Bytes of one row of a file's content."""


def no_file(file_id: str, param: str | None = None) -> NotFound:
    return NotFound(f"No such File object: {file_id[:100]}.", param=param, code="file_not_found")


def insert(
    connection: sqlite3.Connection,
    owner: str,
    content: IO[bytes],
    *,
    filename: str,
    purpose: str,
    seconds: int | None,
    config: FileSearchConfig,
) -> FileObject:
    """Keep an uploaded file, for `seconds` or for good. Raises `InvalidRequest` where the owner has too much."""
    size = content.seek(0, 2)
    content.seek(0)
    number, total = connection.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?", (owner,)
    ).fetchone()
    if number >= config.max_files:
        raise InvalidRequest(
            f"You have {number} files, this server's limit. Delete some.", code="too_many_files"
        )
    if total + size > config.max_total_bytes:
        raise InvalidRequest(
            f"With this file, yours are larger than this server's limit of {config.max_total_bytes} bytes. Delete some.",
            code="storage_limit_exceeded",
        )
    now = int(time.time())
    row = connection.execute(
        "INSERT INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (new_id("file-"), owner, size, now, filename, purpose, now + seconds if seconds else None),
    ).fetchone()
    parts = enumerate(iter(lambda: content.read(PART), b""))
    connection.executemany(
        "INSERT INTO contents (file, part, data) VALUES (?, ?, ?)",
        ((row["seq"], number, data) for number, data in parts),
    )
    return _object(row)


def find(connection: sqlite3.Connection, owner: str, file_id: str) -> sqlite3.Row:
    """The row of a file. Raises `NotFound`."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM files WHERE id = ? AND owner = ? AND coalesce(expires_at > ?, 1)",
        (file_id, owner, time.time()),
    ).fetchone()
    if row is None:
        raise no_file(file_id)
    return row


def get(connection: sqlite3.Connection, owner: str, file_id: str) -> FileObject:
    return _object(find(connection, owner, file_id))


def listed(
    connection: sqlite3.Connection, owner: str, query: ListQuery
) -> tuple[list[FileObject], bool]:
    """A page of an owner's files, and whether there are more."""
    after = None if query.after is None else find(connection, owner, query.after)["seq"]
    where, order = ("seq < ?", "DESC") if query.descending else ("seq > ?", "ASC")
    rows = connection.execute(
        "SELECT * FROM files WHERE owner = ? AND coalesce(expires_at > ?, 1) "
        f"AND (? IS NULL OR purpose = ?) AND (? IS NULL OR {where}) ORDER BY seq {order} LIMIT ?",
        (owner, time.time(), query.chosen, query.chosen, after, after, query.limit + 1),
    ).fetchall()
    return [_object(row) for row in rows[: query.limit]], len(rows) > query.limit


def delete(connection: sqlite3.Connection, owner: str, file_id: str) -> Deleted:
    """Delete a file, and take it out of all vector stores."""
    remove(connection, find(connection, owner, file_id)["seq"])
    return Deleted(id=file_id, object="file")


def remove(connection: sqlite3.Connection, file: int) -> None:
    """Likewise, by its number."""
    for row in connection.execute(
        "SELECT seq, store FROM store_files WHERE file = ?", (file,)
    ).fetchall():
        remove_chunks(connection, row["store"], row["seq"])
    connection.execute("DELETE FROM store_files WHERE file = ?", (file,))
    connection.execute("DELETE FROM files WHERE seq = ?", (file,))


def remove_expired(connection: sqlite3.Connection) -> None:
    for row in connection.execute(
        "SELECT seq FROM files WHERE expires_at <= ?", (time.time(),)
    ).fetchall():
        remove(connection, row["seq"])


def part(connection: sqlite3.Connection, file: int, number: int) -> bytes:
    """A part of a file's content; empty past its end."""
    row = connection.execute(
        "SELECT data FROM contents WHERE file = ? AND part = ?", (file, number)
    ).fetchone()
    return row["data"] if row else b""


def content(connection: sqlite3.Connection, file: int) -> bytes:
    """All of it."""
    return b"".join(_parts(connection, file))


def _parts(connection: sqlite3.Connection, file: int) -> Iterator[bytes]:
    for row in connection.execute(
        "SELECT data FROM contents WHERE file = ? ORDER BY part", (file,)
    ):
        yield row["data"]


def _object(row: sqlite3.Row) -> FileObject:
    return FileObject(
        id=row["id"],
        bytes=row["bytes"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        filename=row["filename"],
        purpose=row["purpose"],
    )
