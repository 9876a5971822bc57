"""The files of `/v1/files`, in a database."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Final, Literal, Protocol, TypeAlias

from gateway.base.errors import InvalidRequest, NotFound, ParamPath, PayloadTooLarge
from gateway.base.temporary_files import temporary_file
from gateway.storage.files.contents import (
    CONTENTS_TABLE,
    Download,
    content_of,
    part_of,
    size_of,
    write_content,
)
from gateway.storage.files.database import FilesDatabase
from gateway.storage.files.form import FileUpload
from gateway.storage.files.growing import GrowingFile
from gateway.storage.files.lists import ListQuery, page
from gateway.wire.common import Value
from gateway.wire.ids import new_id
from gateway.wire.listing import Deleted

FILE_TABLES: Final = f"""
CREATE TABLE files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL, expires_at INTEGER);
CREATE INDEX files_of_owner ON files (owner, seq);
{CONTENTS_TABLE}"""
"""The statements that create the tables of uploaded files: the first version of a database with such files."""
_IN_MEMORY: Final = 1_048_576
_EXPIRED_AT_ONCE: Final = 500
_EXISTS: Final = "owner = ? AND coalesce(expires_at > ?, 1)"


class FileLimits(Protocol):
    """Limits of uploaded files. The configuration of a plugin implements this."""

    @property
    def max_file_bytes(self) -> int:
        """Maximum size of a file in bytes."""
        ...

    @property
    def max_total_bytes(self) -> int:
        """Maximum size of all files of one owner, in bytes."""
        ...

    @property
    def max_files(self) -> int:
        """Maximum number of files of one owner."""
        ...


class FileObject(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    status_details: None = None


Forget: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]


class UploadedFiles:
    """Uploaded files, within limits. `owner` is the name of a principal, or empty."""

    def __init__(self, database: FilesDatabase, limits: FileLimits) -> None:
        """`database` must contain the tables of `FILE_TABLES`."""
        self.database = database
        self.limits = limits
        self._forgetters: list[Forget] = []

    @contextmanager
    def forgotten_by(self, forget: Forget) -> Iterator[None]:
        """Within the context, call `forget` with the ids of files that are deleted or expire, before their removal and
        again after it.

        If the first call raises an error, the files are kept. The second call is for references made between the two.
        """
        self._forgetters.append(forget)
        try:
            yield
        finally:
            self._forgetters.remove(forget)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Make these the files that `uploaded_files` returns, for this event loop."""
        loop = asyncio.get_running_loop()
        _serving[loop] = self
        try:
            yield
        finally:
            if _serving.get(loop) is self:
                del _serving[loop]

    async def add(self, owner: str, upload: FileUpload) -> FileObject:
        """Store a file. Raises `InvalidRequest` if a limit of the owner is exceeded."""
        return await self.database.write(
            lambda c: insert_file(c, owner, upload, self.limits, self.held(c, owner))
        )

    async def get(self, owner: str, file_id: str) -> FileObject:
        """The description of a file. Raises `NotFound`."""
        return file_object(await self.database.read(lambda c: find_file(c, owner, file_id)))

    async def check_room(self, owner: str) -> None:
        """Raise `InvalidRequest` if the limits do not allow the owner one more file."""
        await self.database.read(
            lambda c: check_room(c, owner, 1, self.limits, self.held(c, owner))
        )

    def held(self, connection: sqlite3.Connection, owner: str) -> tuple[int, int]:
        """Number and total size in bytes of files that the owner has begun to upload. They count towards the limits."""
        return 0, 0

    async def find(self, owner: str, file_ids: Collection[str]) -> dict[str, FileObject]:
        """The files of `owner` with ids in `file_ids`, by id."""

        def find(connection: sqlite3.Connection) -> dict[str, FileObject]:
            rows = ((each, _row(connection, owner, each)) for each in file_ids)
            return {each: file_object(row) for each, row in rows if row is not None}

        return await self.database.read(find)

    async def read(self, owner: str, file_id: str, *, max_bytes: int) -> bytes:
        """The content of a file. Raises `NotFound`, and `PayloadTooLarge` if its size exceeds `max_bytes`; the content
        is not read then."""

        def read(connection: sqlite3.Connection) -> bytes:
            row = find_file(connection, owner, file_id)
            if row["bytes"] > max_bytes:
                raise PayloadTooLarge(
                    f"The file '{file_id}' has {row['bytes']} bytes, more than the limit of {max_bytes}.",
                    code="file_too_large",
                )
            return content_of(connection, row["seq"])

        return await self.database.read(read)

    async def adopt(self, owner: str, file: FileObject, content: IO[bytes]) -> None:
        """Store a file from another database, regardless of the limits. Does nothing if the file is stored already."""

        def adopt(connection: sqlite3.Connection) -> None:
            row = connection.execute(
                "INSERT OR IGNORE INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING seq",
                (file.id, owner, file.bytes, file.created_at, file.filename, file.purpose, file.expires_at),
            ).fetchone()  # fmt: skip
            if row is not None:
                write_content(connection, row["seq"], content)

        await self.database.write(adopt)

    @asynccontextmanager
    async def growing(self) -> AsyncIterator[GrowingFile]:
        """A new file that is written in parts. It is removed on exit if it was not finished."""
        file = GrowingFile(self.database)
        try:
            yield file
        finally:
            await file.discard()

    async def list(self, owner: str, query: ListQuery) -> tuple[list[FileObject], bool]:
        """A page of an owner's files, and whether there are more. If `query.chosen` is given, only files with this
        purpose."""
        rows, more = await self.database.read(
            lambda c: page(
                c,
                "files",
                f"{_EXISTS} AND (? IS NULL OR purpose = ?)",
                (owner, time.time(), query.chosen, query.chosen),
                query,
                lambda file_id, param: find_file(c, owner, file_id),
            )
        )
        return [file_object(row) for row in rows], more

    async def delete(self, owner: str, file_id: str) -> Deleted:
        """Delete a file. Raises `NotFound`."""
        await self.database.read(lambda c: find_file(c, owner, file_id))
        if not await self._remove([file_id]):  # another request has deleted it
            raise no_such_file(file_id)
        return Deleted(id=file_id, object="file")

    async def download(self, owner: str, file_id: str) -> Download:
        """An ASGI application that sends a file's content. Raises `NotFound`."""
        row = await self.database.read(lambda c: find_file(c, owner, file_id))
        return Download(
            self.database,
            lambda c, number: part_of(c, row["seq"], number),
            filename=row["filename"],
            size=row["bytes"],
        )

    def check(self, owner: str, file_id: str) -> None:
        """Raise `NotFound` if there is no such file."""
        self.database.now(lambda c: find_file(c, owner, file_id))

    @asynccontextmanager
    async def copied(self, owner: str, file_id: str) -> AsyncIterator[tuple[str, IO[bytes]]]:
        """A file's name and a copy of its content. Raises `NotFound`."""
        row = await self.database.read(lambda c: find_file(c, owner, file_id))
        with temporary_file(_IN_MEMORY) as content:
            number = 0
            while data := await self.database.read(
                lambda c, number=number: part_of(c, row["seq"], number)  # type: ignore[misc]
            ):
                content.write(data)
                number += 1
            content.flush()
            if content.tell() != row["bytes"]:  # deleted while it was copied
                raise no_such_file(file_id)
            yield row["filename"], content

    async def remove_expired(self) -> None:
        """Delete the files that have expired."""
        while expired := await self.database.read(_expired):
            await self._remove(expired)

    async def _remove(self, file_ids: Sequence[str]) -> int:
        def remove(connection: sqlite3.Connection) -> int:
            ids = [(each,) for each in file_ids]
            return connection.executemany("DELETE FROM files WHERE id = ?", ids).rowcount

        await self._forget(file_ids)
        removed = await self.database.write(remove)
        await self._forget(file_ids)
        return removed

    async def _forget(self, file_ids: Sequence[str]) -> None:
        for forget in tuple(self._forgetters):
            await forget(file_ids)


_serving: dict[asyncio.AbstractEventLoop, UploadedFiles] = {}


def uploaded_files() -> UploadedFiles | None:
    """The files that the running gateway serves at `/v1/files`, or None."""
    return _serving.get(asyncio.get_running_loop())


def find_file(connection: sqlite3.Connection, owner: str, file_id: str) -> sqlite3.Row:
    """The row of a file. Raises `NotFound`."""
    row = _row(connection, owner, file_id)
    if row is None:
        raise no_such_file(file_id)
    return row


def no_such_file(file_id: str, param: str | ParamPath = ()) -> NotFound:
    """The error for a file that does not exist. `param` is the position of its id in the request."""
    return NotFound(f"No such File object: {file_id[:100]}.", param=param, code="file_not_found")


def _row(connection: sqlite3.Connection, owner: str, file_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        f"SELECT * FROM files WHERE id = ? AND {_EXISTS}",  # noqa: S608 - our own condition
        (file_id, owner, time.time()),
    ).fetchone()
    return row


def _expired(connection: sqlite3.Connection) -> Sequence[str]:
    rows = connection.execute(
        "SELECT id FROM files WHERE expires_at <= ? LIMIT ?", (time.time(), _EXPIRED_AT_ONCE)
    )
    return [row["id"] for row in rows]


def check_room(
    connection: sqlite3.Connection,
    owner: str,
    size: int,
    limits: FileLimits,
    held: tuple[int, int],
    *,
    files: int = 1,
) -> None:
    """Raise `InvalidRequest` if the limits do not allow the owner `files` more files with `size` bytes together. `held`
    is the result of `UploadedFiles.held`."""
    number, total = connection.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?", (owner,)
    ).fetchone()
    number, total = number + held[0], total + held[1]
    if number + files > limits.max_files:
        raise InvalidRequest(
            f"You have {number} files, this server's limit. Delete some.", code="too_many_files"
        )
    if total + size > limits.max_total_bytes:
        raise InvalidRequest(
            f"This exceeds the limit of {limits.max_total_bytes} bytes for all your files. Delete some files.",
            code="storage_limit_exceeded",
        )


def insert_file(
    connection: sqlite3.Connection,
    owner: str,
    upload: FileUpload,
    limits: FileLimits,
    held: tuple[int, int],
) -> FileObject:
    """Store an uploaded file. Raises `InvalidRequest` if a limit of the owner is exceeded."""
    size = size_of(upload.content)
    check_room(connection, owner, size, limits, held)
    row = new_file(
        connection, owner, size, upload.filename, purpose=upload.purpose, seconds=upload.seconds
    )
    write_content(connection, row["seq"], upload.content)
    return file_object(row)


def new_file(
    connection: sqlite3.Connection,
    owner: str,
    size: int,
    filename: str,
    *,
    purpose: str,
    seconds: int | None,
) -> sqlite3.Row:
    """Insert a new file without content, regardless of the limits. Returns its row."""
    now = int(time.time())
    expiry = None if seconds is None else now + seconds
    row: sqlite3.Row = connection.execute(
        "INSERT INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (new_id("file-"), owner, size, now, filename, purpose, expiry),
    ).fetchone()
    return row


def file_object(row: sqlite3.Row) -> FileObject:
    """The description of the file in a row."""
    return FileObject(
        id=row["id"],
        bytes=row["bytes"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        filename=row["filename"],
        purpose=row["purpose"],
    )
