"""The files of containers, in the database."""

from __future__ import annotations

import sqlite3
import time
from typing import IO, Final, Literal, TypeAlias

from gateway.sdk import InvalidRequest, NotFound
from gateway.sdk.files import ListQuery, page, part_of, size_of, write_content
from gateway.sdk.wire import Deleted, new_id
from gateway_container.config import ContainersConfig
from gateway_container.library.objects import ContainerFile
from gateway_container.library.records import find, finder, make_room

Source: TypeAlias = Literal["user", "assistant"]

ROOT: Final = "/mnt/data/"
"""Prefix of paths in the API; paths in the database are relative to it."""
_LONGEST: Final = 1000
MAX_DEPTH: Final = 32
"""Maximum folder depth; the same as the agent lists."""


def is_path(path: str) -> bool:
    """Whether `path` is a valid file path below the working folder."""
    steps = path.split("/")
    return (
        len(path) <= _LONGEST
        and len(steps) <= MAX_DEPTH + 1
        and path.isprintable()
        and all(step not in ("", ".", "..") and len(step.encode()) <= 255 for step in steps)
    )


def put(
    connection: sqlite3.Connection,
    owner: str,
    container_id: str,
    path: str,
    content: IO[bytes],
    *,
    source: Source,
    config: ContainersConfig,
) -> sqlite3.Row:
    """Store a file. Replaces a file of the same path and takes over its id. Returns its row, with the new `version`
    of its container.

    Raises `InvalidRequest` if a limit is exceeded, `NotFound` if there is no such container.
    """
    container = find(connection, owner, container_id)["seq"]
    size = size_of(content)
    _check_limits(connection, owner, container, path, size, config)
    connection.execute(
        "DELETE FROM contents WHERE file = (SELECT seq FROM files WHERE container = ? AND path = ?)",
        (container, path),
    )
    [seq] = connection.execute(
        "INSERT INTO files (id, container, path, bytes, created_at, source) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (container, path) DO UPDATE SET bytes = excluded.bytes, created_at = excluded.created_at, "
        "source = excluded.source, revision = revision + 1 RETURNING seq",
        (new_id("cfile_"), container, path, size, time.time(), source),
    ).fetchone()
    write_content(connection, seq, content)
    _changed(connection, container)
    row: sqlite3.Row = connection.execute(f"{_WITH_VERSION} WHERE files.seq = ?", (seq,)).fetchone()
    return row


_WITH_VERSION = (
    "SELECT files.*, containers.version, containers.id AS container_id "
    "FROM files JOIN containers ON containers.seq = files.container"
)


def _check_limits(
    connection: sqlite3.Connection,
    owner: str,
    container: int,
    path: str,
    size: int,
    config: ContainersConfig,
) -> None:
    number, total = connection.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE container = ? AND path != ?",
        (container, path),
    ).fetchone()
    if number >= config.max_files:
        raise InvalidRequest(
            f"The container has {number} files, this server's limit. Delete some.",
            code="too_many_files",
        )
    if total + size > config.max_disk_bytes:
        raise InvalidRequest(
            f"This file exceeds the limit of {config.max_disk_bytes} bytes for the files of a container. "
            "Delete some files.",
            code="storage_limit_exceeded",
        )
    while True:
        [total] = connection.execute(
            "SELECT coalesce(sum(files.bytes), 0) FROM files JOIN containers ON containers.seq = files.container "
            "WHERE owner = ? AND NOT (container = ? AND path = ?)",
            (owner, container, path),
        ).fetchone()
        if total + size <= config.max_total_bytes:
            return
        if not make_room(connection, owner, but=container):
            raise InvalidRequest(
                f"This file exceeds the limit of {config.max_total_bytes} bytes for the files of all your containers. "
                "Delete some files.",
                code="storage_limit_exceeded",
            )


def _changed(connection: sqlite3.Connection, container: int) -> None:
    connection.execute(
        "UPDATE containers SET version = version + 1, active_at = ? WHERE seq = ?",
        (time.time(), container),
    )


def version_of(connection: sqlite3.Connection, container_id: str) -> int | None:
    """The version of a container, which changes with every change of its files. None if there is no such container."""
    row = connection.execute(
        "SELECT version FROM containers WHERE id = ?", (container_id,)
    ).fetchone()
    return row["version"] if row else None


def rows_of(connection: sqlite3.Connection, container_id: str) -> list[sqlite3.Row]:
    """The rows of a container's files, without their contents."""
    return connection.execute(
        f"{_WITH_VERSION} WHERE containers.id = ? ORDER BY files.seq", (container_id,)
    ).fetchall()


def listed(
    connection: sqlite3.Connection, owner: str, container_id: str, query: ListQuery
) -> tuple[list[ContainerFile], bool]:
    """A page of a container's files, and whether there are more."""
    container = find(connection, owner, container_id)
    rows, more = page(
        connection,
        "files",
        "container = ?",
        [container["seq"]],
        query,
        finder(connection, "files", "container", container["seq"]),
    )
    return [_object(row, container_id) for row in rows], more


def row_of(
    connection: sqlite3.Connection, owner: str, container_id: str, file_id: str
) -> sqlite3.Row:
    """The row of a file. Raises `NotFound`."""
    container = find(connection, owner, container_id)
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM files WHERE container = ? AND id = ?", (container["seq"], file_id)
    ).fetchone()
    if row is None:
        raise NotFound(
            f"Container file with id '{file_id[:100]}' not found.", code="container_file_not_found"
        )
    return row


def get(
    connection: sqlite3.Connection, owner: str, container_id: str, file_id: str
) -> ContainerFile:
    return _object(row_of(connection, owner, container_id, file_id), container_id)


def delete(connection: sqlite3.Connection, owner: str, container_id: str, file_id: str) -> Deleted:
    row = row_of(connection, owner, container_id, file_id)
    connection.execute("DELETE FROM files WHERE seq = ?", (row["seq"],))
    _changed(connection, row["container"])
    return Deleted(id=file_id, object="container.file.deleted")


def forget(
    connection: sqlite3.Connection, container_id: str, kept: list[tuple[str, int]]
) -> int | None:
    """Delete the files of these ids whose revision is unchanged. Returns the container's new version."""
    container = None
    for file_id, revision in kept:
        row = connection.execute(
            "DELETE FROM files WHERE id = ? AND revision = ? RETURNING container",
            (file_id, revision),
        ).fetchone()
        container = row["container"] if row else container
    if container is not None:
        _changed(connection, container)
    return version_of(connection, container_id)


def part(connection: sqlite3.Connection, row: sqlite3.Row, number: int) -> bytes:
    """A part of the content of the file described by `row`; empty if it was deleted or changed since."""
    now = connection.execute("SELECT revision FROM files WHERE seq = ?", (row["seq"],)).fetchone()
    unchanged = now is not None and now["revision"] == row["revision"]
    return part_of(connection, row["seq"], number) if unchanged else b""


def file_object(row: sqlite3.Row) -> ContainerFile:
    """The API object for a row of `put` or `rows_of`."""
    return _object(row, row["container_id"])


def _object(row: sqlite3.Row, container_id: str) -> ContainerFile:
    return ContainerFile(
        id=row["id"],
        created_at=int(row["created_at"]),
        bytes=row["bytes"],
        container_id=container_id,
        path=ROOT + row["path"],
        source=row["source"],
    )
