"""Files that are uploaded in parts: `/v1/uploads`, in the database of the files."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from typing import IO, Annotated, Final, Literal

from msgspec import Meta

from gateway.sdk import InvalidRequest, NotFound
from gateway.sdk.files import (
    FILE_TABLES,
    PART,
    PURPOSES,
    FileObject,
    UploadedFiles,
    check_room,
    clean_filename,
    file_object,
    find_file,
    new_file,
    size_of,
)
from gateway.sdk.wire import Value, new_id, not_among

VERSIONS: Final = (
    FILE_TABLES,
    """
CREATE TABLE uploads (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    seconds INTEGER, stored INTEGER NOT NULL DEFAULT 0, parts INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL DEFAULT 'pending', file_id TEXT);
CREATE INDEX uploads_of_owner ON uploads (owner, status, seq);
CREATE INDEX uploads_by_expiry ON uploads (expires_at);
CREATE TABLE upload_parts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    upload INTEGER NOT NULL REFERENCES uploads (seq) ON DELETE CASCADE, bytes INTEGER NOT NULL);
CREATE INDEX parts_of_upload ON upload_parts (upload);
CREATE TABLE upload_contents (
    part INTEGER NOT NULL REFERENCES upload_parts (seq) ON DELETE CASCADE, number INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (part, number));
""",
)
"""Statements that migrate each version of the files' database to the next. `stored` is the size of the parts of an upload, `parts` their
number."""
LIFETIME: Final = 3600
"""Seconds after which an upload expires, as at OpenAI."""
MAX_PARTS: Final = 1000
"""Maximum number of parts of an upload."""
MAX_PART_BYTES: Final = 67_108_864
"""Maximum size of a part in bytes, as at OpenAI."""
_ENDED_KEPT: Final = 1000
"""Number of uploads of one owner that are remembered after their end, until they expire."""
_EXPIRED_AT_ONCE: Final = 100


class ExpiresAfter(Value, frozen=True, kw_only=True):
    anchor: Literal["created_at"]
    """The creation of the file."""
    seconds: Annotated[int, Meta(ge=3600, le=2_592_000)]


class CreateUpload(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/uploads`."""

    bytes: Annotated[int, Meta(ge=0, le=2**53)]
    filename: Annotated[str, Meta(max_length=4096)]
    mime_type: Annotated[str, Meta(max_length=255)]
    """It has no effect: names and contents say what files are."""
    purpose: str
    expires_after: ExpiresAfter | None = None


class CompleteUpload(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/uploads/{upload_id}/complete`."""

    part_ids: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=MAX_PARTS)]
    md5: Annotated[str, Meta(max_length=100)] | None = None


class Upload(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: FileObject | None = None


class UploadPart(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str


class Uploads:
    """The uploads in parts of all owners."""

    def __init__(self, files: UploadedFiles) -> None:
        """The database of `files` has `VERSIONS`."""
        self._files = files
        self._read = files.database.read
        self._write = files.database.write

    async def create(self, owner: str, asked: CreateUpload) -> Upload:
        """Begin an upload, for which there is room. Raises `InvalidRequest`."""
        filename = clean_filename(asked.filename, "filename")
        if asked.purpose not in PURPOSES:
            raise not_among("purpose", asked.purpose, list(PURPOSES))
        limits = self._files.limits
        if asked.bytes > limits.max_file_bytes:
            raise InvalidRequest(
                f"Invalid 'bytes': {asked.bytes}. A file has at most {limits.max_file_bytes} bytes on this server.",
                param="bytes",
                code="integer_above_max_value",
            )
        seconds = None if asked.expires_after is None else asked.expires_after.seconds

        def create(connection: sqlite3.Connection) -> Upload:
            check_room(connection, owner, asked.bytes, limits, self._files.held(connection, owner))
            _forget_ended(connection, owner)
            now = int(time.time())
            row = connection.execute(
                "INSERT INTO uploads (id, owner, bytes, created_at, expires_at, filename, purpose, seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
                (new_id("upload_"), owner, asked.bytes, now, now + LIFETIME, filename, asked.purpose, seconds),
            ).fetchone()  # fmt: skip
            return _upload(connection, row)

        return await self._write(create)

    async def room(self, owner: str, upload_id: str) -> int:
        """How large a further part may be, in bytes. Raises `NotFound`, and `InvalidRequest` if none may be added."""
        return await self._read(lambda c: _room(_pending(c, owner, upload_id)))

    async def add(self, owner: str, upload_id: str, content: IO[bytes]) -> UploadPart:
        """Store a part. Raises `NotFound` and `InvalidRequest`."""
        size = size_of(content)
        if not size:
            raise InvalidRequest("The part is empty.", param="data", code="empty_part")

        def add(connection: sqlite3.Connection) -> UploadPart:
            row = _pending(connection, owner, upload_id)
            if size > _room(row):
                raise _too_much(row)
            # Parts beyond the announced size are those that a client has sent again. They need room of their own.
            further = max(row["stored"] + size - max(row["bytes"], row["stored"]), 0)
            held = self._files.held(connection, owner)
            check_room(connection, owner, further, self._files.limits, held, files=0)
            part = new_id("part_")
            [seq] = connection.execute(
                "INSERT INTO upload_parts (id, upload, bytes) VALUES (?, ?, ?) RETURNING seq",
                (part, row["seq"], size),
            ).fetchone()
            connection.executemany(
                "INSERT INTO upload_contents (part, number, data) VALUES (?, ?, ?)",
                (
                    (seq, number, data)
                    for number, data in enumerate(iter(lambda: content.read(PART), b""))
                ),
            )
            connection.execute(
                "UPDATE uploads SET stored = stored + ?, parts = parts + 1 WHERE seq = ?",
                (size, row["seq"]),
            )
            return UploadPart(id=part, created_at=int(time.time()), upload_id=upload_id)

        return await self._write(add)

    async def complete(self, owner: str, upload_id: str, asked: CompleteUpload) -> Upload:
        """Make the parts a file. Completing again shows it again. Raises `NotFound` and `InvalidRequest`."""
        if asked.md5 is not None:
            await self._check_md5(owner, upload_id, asked.part_ids, asked.md5)

        def complete(connection: sqlite3.Connection) -> Upload:
            row = _find(connection, owner, upload_id)
            if row["status"] == "completed":
                return _upload(connection, row)
            row = _pending(connection, owner, upload_id)
            parts = _chosen(connection, row, asked.part_ids)
            # It is no longer held, but a file.
            _end(connection, row, "completed")
            size = row["bytes"]
            held = self._files.held(connection, owner)
            check_room(connection, owner, size, self._files.limits, held)
            made = new_file(
                connection,
                owner,
                size,
                row["filename"],
                purpose=row["purpose"],
                seconds=row["seconds"],
            )
            number = 0
            for part in parts:
                number += connection.execute(
                    "INSERT INTO contents (file, part, data) SELECT ?, ? + number, data FROM upload_contents WHERE part = ?",
                    (made["seq"], number, part),
                ).rowcount
            _drop_parts(connection, row)
            connection.execute(
                "UPDATE uploads SET file_id = ? WHERE seq = ?", (made["id"], row["seq"])
            )
            return _upload(connection, _find(connection, owner, upload_id))

        return await self._write(complete)

    async def cancel(self, owner: str, upload_id: str) -> Upload:
        """End an upload and delete its parts. Cancelling again shows it again. Raises `NotFound`, and `InvalidRequest` if it was completed."""

        def cancel(connection: sqlite3.Connection) -> Upload:
            row = _find(connection, owner, upload_id)
            if row["status"] != "cancelled":
                row = _pending(connection, owner, upload_id)
                _end(connection, row, "cancelled")
                _drop_parts(connection, row)
            return _upload(connection, _find(connection, owner, upload_id))

        return await self._write(cancel)

    async def remove_expired(self) -> None:
        """Delete uploads that have expired, with their parts."""

        def remove(connection: sqlite3.Connection) -> int:
            return connection.execute(
                "DELETE FROM uploads WHERE seq IN (SELECT seq FROM uploads WHERE expires_at <= ? LIMIT ?)",
                (time.time(), _EXPIRED_AT_ONCE),
            ).rowcount

        while await self._write(remove):
            pass

    async def _check_md5(
        self, owner: str, upload_id: str, part_ids: Sequence[str], expected: str
    ) -> None:
        def md5(connection: sqlite3.Connection) -> str | None:
            row = _find(connection, owner, upload_id)
            if row["status"] == "completed":
                return None
            found = hashlib.md5(usedforsecurity=False)
            for part in _chosen(connection, _pending(connection, owner, upload_id), part_ids):
                for [data] in connection.execute(
                    "SELECT data FROM upload_contents WHERE part = ? ORDER BY number", (part,)
                ):
                    found.update(data)
            return found.hexdigest()

        found = await self._read(md5)
        if found is not None and found != expected.strip().lower():
            raise InvalidRequest(
                f"The MD5 of the parts, in this order, is {found}. Send what is missing or was damaged again.",
                param="md5",
                code="invalid_value",
            )


def held(connection: sqlite3.Connection, owner: str) -> tuple[int, int]:
    """Number and size of the owner's uploads that have not ended."""
    number, size = connection.execute(
        "SELECT count(*), coalesce(sum(max(bytes, stored)), 0) FROM uploads WHERE owner = ? AND status = 'pending'",
        (owner,),
    ).fetchone()
    return number, size


def _find(connection: sqlite3.Connection, owner: str, upload_id: str) -> sqlite3.Row:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM uploads WHERE id = ? AND owner = ? AND expires_at > ?",
        (upload_id, owner, time.time()),
    ).fetchone()
    if row is None:
        raise NotFound(
            f"No such Upload object: {upload_id[:100]}. Uploads expire an hour after they were created.",
            code="upload_not_found",
        )
    return row


def _pending(connection: sqlite3.Connection, owner: str, upload_id: str) -> sqlite3.Row:
    """The row of an upload that has not ended."""
    row = _find(connection, owner, upload_id)
    if row["status"] != "pending":
        raise InvalidRequest(
            f"The upload is {row['status']} already. Create another one.", code="upload_ended"
        )
    return row


def _room(row: sqlite3.Row) -> int:
    """How large a further part may be, in bytes."""
    if row["parts"] >= MAX_PARTS:
        raise InvalidRequest(
            f"An upload has at most {MAX_PARTS} parts, and this one has them. Send larger parts.",
            code="too_many_parts",
        )
    # All of it may be sent twice, because clients repeat requests whose answers were lost.
    room: int = min(2 * row["bytes"] - row["stored"], row["bytes"], MAX_PART_BYTES)
    if room <= 0:
        raise _too_much(row)
    return room


def _too_much(row: sqlite3.Row) -> InvalidRequest:
    return InvalidRequest(
        f"The upload has {row['bytes']} bytes, as it was created. This part is too much for it.",
        param="data",
        code="upload_too_large",
    )


def _chosen(connection: sqlite3.Connection, row: sqlite3.Row, part_ids: Sequence[str]) -> list[int]:
    """The numbers of the parts that make the file. Raises `InvalidRequest`."""
    sizes = {
        part["id"]: (part["seq"], part["bytes"])
        for part in connection.execute("SELECT * FROM upload_parts WHERE upload = ?", (row["seq"],))
    }
    for index, part_id in enumerate(part_ids):
        if part_id not in sizes:
            raise InvalidRequest(
                f"The upload has no part '{part_id}'.",
                param=("part_ids", index),
                code="invalid_value",
            )
    if len(set(part_ids)) < len(part_ids):
        raise InvalidRequest(
            "'part_ids' names a part twice.", param="part_ids", code="invalid_value"
        )
    total = sum(sizes[part_id][1] for part_id in part_ids)
    if total != row["bytes"]:
        raise InvalidRequest(
            f"The parts have {total} bytes together, but the upload was created with {row['bytes']}.",
            param="part_ids",
            code="invalid_value",
        )
    return [sizes[part_id][0] for part_id in part_ids]


def _end(connection: sqlite3.Connection, row: sqlite3.Row, status: str) -> None:
    connection.execute("UPDATE uploads SET status = ? WHERE seq = ?", (status, row["seq"]))


def _drop_parts(connection: sqlite3.Connection, row: sqlite3.Row) -> None:
    connection.execute("DELETE FROM upload_parts WHERE upload = ?", (row["seq"],))


def _forget_ended(connection: sqlite3.Connection, owner: str) -> None:
    """Forget the owner's uploads that ended long ago, so that creating and cancelling them fills no disk."""
    for status in ("cancelled", "completed"):
        connection.execute(
            "DELETE FROM uploads WHERE owner = ? AND status = ? AND seq <= "
            "(SELECT seq FROM uploads WHERE owner = ? AND status = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)",
            (owner, status, owner, status, _ENDED_KEPT),
        )


def _upload(connection: sqlite3.Connection, row: sqlite3.Row) -> Upload:
    file = None
    if row["file_id"] is not None:
        try:
            file = file_object(find_file(connection, row["owner"], row["file_id"]))
        except NotFound:  # deleted since
            file = None
    return Upload(
        id=row["id"],
        bytes=row["bytes"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        filename=row["filename"],
        purpose=row["purpose"],
        status=row["status"],
        file=file,
    )
