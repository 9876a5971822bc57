"""The SQLite database of batches. It lies beside the files, and lasts as long."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.sdk.files import FilesDatabase

FILE: Final = "batches.sqlite3"
_VERSIONS: Final = (
    """CREATE TABLE batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, delegation BLOB NOT NULL,
    endpoint TEXT NOT NULL, input_file_id TEXT NOT NULL, completion_window TEXT NOT NULL, metadata TEXT,
    output_seconds INTEGER, output_id TEXT NOT NULL, error_id TEXT NOT NULL,
    status TEXT NOT NULL, ending TEXT, model TEXT, errors TEXT NOT NULL DEFAULT '[]',
    output_file_id TEXT, error_file_id TEXT, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER, expired_at INTEGER,
    cancelling_at INTEGER, cancelled_at INTEGER, ended_at INTEGER,
    total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
    output_bytes INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0, leased_until REAL NOT NULL DEFAULT 0);
CREATE INDEX batches_of_owner ON batches (owner, seq);
CREATE INDEX active_batches ON batches (leased_until) WHERE ended_at IS NULL;
CREATE INDEX ended_batches ON batches (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE lines (
    seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batches (seq) ON DELETE CASCADE, number INTEGER NOT NULL,
    custom_id TEXT, body BLOB, state INTEGER NOT NULL, result BLOB, UNIQUE (batch, number), UNIQUE (batch, custom_id));
CREATE INDEX pending_lines ON lines (batch, number) WHERE state = 0;
""",
)
"""Statements that migrate each version of the database to the next.

`output_id` and `error_id` are the ids that the files of results will have. `fence` grows whenever a process takes the batch over: who
holds an earlier one can write no more. The `state` of a line is one of `gateway_batches.lines`."""


class BatchDatabase(FilesDatabase):
    """The database in `folder`. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        """Creates missing tables and folders. Raises `ConfigurationError`."""
        super().__init__(
            folder / FILE, _VERSIONS, name="The batches", setting="resources.files.path"
        )
