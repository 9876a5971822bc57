"""Moves uploaded files out of databases of earlier versions, which kept them beside the vector stores."""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

from gateway.sdk import ConfigurationError
from gateway.sdk.files import (
    FileObject,
    FilesDatabase,
    UploadedFiles,
    part_of,
    size_of,
    temporary_file,
)

logger = logging.getLogger("gateway.file_search")

_IN_MEMORY: Final = 1_048_576


async def move_old_files(
    database: FilesDatabase, files: UploadedFiles, *, is_temporary: bool
) -> None:
    """Move the files that `database` keeps to `files`, with their ids. Continues what a process that ended has begun.

    Raises `ConfigurationError` if `files` are temporary.
    """
    moved = 0
    while (row := await database.read(_next)) is not None:
        if is_temporary:
            raise ConfigurationError(
                "resources.files.path: the folder of tools.file_search.path has uploaded files of an earlier version. Set "
                "resources.files.path to the folder they are to be moved to; the same one will do."
            )
        await _move(database, files, row)
        moved += 1
    if moved:
        logger.info("file_search: %d uploaded files were moved to resources.files.path", moved)


async def _move(database: FilesDatabase, files: UploadedFiles, row: sqlite3.Row) -> None:
    number: int = row["seq"]
    with temporary_file(_IN_MEMORY) as content:
        part = 0
        while data := await database.read(
            lambda c, part=part: part_of(c, number, part)  # type: ignore[misc]
        ):
            content.write(data)
            part += 1
        content.flush()
        # It is incomplete if another process has moved the file meanwhile.
        if size_of(content) == row["bytes"]:
            file = FileObject(
                id=row["id"],
                bytes=row["bytes"],
                created_at=row["created_at"],
                expires_at=row["expires_at"],
                filename=row["filename"],
                purpose=row["purpose"],
            )
            await files.adopt(row["owner"], file, content)

    def finish(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE files SET old = 0 WHERE seq = ?", (number,))
        connection.execute("DELETE FROM contents WHERE file = ?", (number,))

    await database.write(finish)


def _next(connection: sqlite3.Connection) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM files WHERE old = 1 ORDER BY seq LIMIT 1"
    ).fetchone()
    return row
