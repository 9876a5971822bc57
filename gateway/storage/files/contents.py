"""Storing the contents of files in a database, in parts, so that at most one part is held in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import IO, Any, Final
from urllib.parse import quote

from gateway.storage.files.database import FilesDatabase

CONTENTS_TABLE: Final = """
CREATE TABLE contents (
    file INTEGER NOT NULL REFERENCES files (seq) ON DELETE CASCADE, part INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (file, part));
"""
PART: Final = 262_144
"""Size of a part in bytes. Databases of earlier versions may have parts of another size."""


def size_of(content: IO[bytes]) -> int:
    """The size of a seekable file in bytes. Sets its position to the beginning."""
    size = content.seek(0, 2)
    content.seek(0)
    return size


def write_content(connection: sqlite3.Connection, file: int, content: IO[bytes]) -> None:
    """Store the content of the file with the number `file`, which must have no content yet."""
    parts = enumerate(iter(lambda: content.read(PART), b""))
    connection.executemany(
        "INSERT INTO contents (file, part, data) VALUES (?, ?, ?)",
        ((file, number, data) for number, data in parts),
    )


def part_of(connection: sqlite3.Connection, file: int, number: int) -> bytes:
    """The part with the number `number` of a file's content; empty past the end."""
    row = connection.execute(
        "SELECT data FROM contents WHERE file = ? AND part = ?", (file, number)
    ).fetchone()
    return row["data"] if row else b""


def content_of(connection: sqlite3.Connection, file: int) -> bytes:
    """The whole content of a file."""
    rows = connection.execute("SELECT data FROM contents WHERE file = ? ORDER BY part", (file,))
    return b"".join(row["data"] for row in rows)


class Download:
    """ASGI application that streams a file's content, holding one part of it in memory at a time."""

    def __init__(
        self,
        database: FilesDatabase,
        read: Callable[[sqlite3.Connection, int], bytes],
        *,
        filename: str,
        size: int,
    ) -> None:
        """`read` returns the part with a number, or empty bytes if the file was deleted or changed."""
        self._database = database
        self._read = read
        self._filename = filename
        self._size = size

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Forces a download: HTML from a user or a model must not be rendered with this server's
        # origin.
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(self._size),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(self._filename, safe='')}",
            "x-content-type-options": "nosniff",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        sent = number = 0
        while sent < self._size:
            part = await self._database.read(lambda c, number=number: self._read(c, number))  # type: ignore[misc]
            if not part:
                raise OSError("the file was deleted or changed while it was sent")
            await send({"type": "http.response.body", "body": part, "more_body": True})
            sent += len(part)
            number += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})
