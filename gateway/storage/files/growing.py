"""Writing a file in several transactions, because it is too large for one."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from gateway.base.errors import StoreUnavailable
from gateway.storage.files.contents import PART
from gateway.storage.files.database import FilesDatabase
from gateway.wire.ids import new_id

_NOBODY: Final = b""
"""The owner of unfinished files. All other owners are text, so no owner's name is equal to it."""
_KEPT_SECONDS: Final = 3600
"""Seconds after which the unfinished file of a killed process is removed."""


class GrowingFile:
    """A file that is stored in parts, each in a separate transaction. It has no owner until it is finished."""

    def __init__(self, database: FilesDatabase) -> None:
        self._database = database
        self._seq: int | None = None
        self._parts = 0
        self._bytes = 0

    async def append(self, data: bytes) -> None:
        """Append `data`. Raises `StoreUnavailable`."""
        seq, number = await self._database.write(lambda c: self._append(c, data))
        self._seq, self._parts = seq, number
        self._bytes += len(data)

    async def finish(
        self, owner: str, file_id: str, *, filename: str, purpose: str, seconds: int | None
    ) -> None:
        """Make this a file of `owner` with the id `file_id`, which expires after `seconds`, regardless of the limits.
        Does nothing if there is a file with this id. Raises `StoreUnavailable`."""
        if not self._parts:
            await self.append(b"")
        now = int(time.time())
        expiry = None if seconds is None else now + seconds

        def finish(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE OR IGNORE files SET id = ?, owner = ?, bytes = ?, created_at = ?, filename = ?, purpose = ?, expires_at = ? "
                "WHERE seq = ?",
                (file_id, owner, self._bytes, now, filename, purpose, expiry, self._seq),
            ).rowcount
            if changed:
                return True
            if not connection.execute("SELECT 1 FROM files WHERE id = ?", (file_id,)).fetchone():
                raise _removed()
            return False

        if await self._database.write(finish):
            self._seq = None

    async def discard(self) -> None:
        """Remove the file if it was not finished."""
        if self._seq is not None:
            seq, self._seq = self._seq, None
            await self._database.write(
                # The file has an owner if `finish` was cancelled after its transaction: it may be
                # in use already.
                lambda c: c.execute("DELETE FROM files WHERE seq = ? AND owner = ?", (seq, _NOBODY))
            )

    def _append(self, connection: sqlite3.Connection, data: bytes) -> tuple[int, int]:
        seq, number = self._seq, self._parts
        kept_until = int(time.time()) + _KEPT_SECONDS
        if seq is None:
            [seq] = connection.execute(
                "INSERT INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) VALUES (?, ?, 0, 0, '', '', ?) "
                "RETURNING seq",
                (new_id("file-"), _NOBODY, kept_until),
            ).fetchone()
        elif not connection.execute(
            "UPDATE files SET expires_at = ? WHERE seq = ?", (kept_until, seq)
        ).rowcount:
            raise _removed()
        for start in range(0, len(data), PART):
            connection.execute(
                "INSERT INTO contents (file, part, data) VALUES (?, ?, ?)",
                (seq, number, data[start : start + PART]),
            )
            number += 1
        return seq, number


def _removed() -> StoreUnavailable:
    return StoreUnavailable("A file was removed while it was written. Retry.")
