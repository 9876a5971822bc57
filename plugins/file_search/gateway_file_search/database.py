"""The SQLite database of vector stores, their indexes, and what they show of files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.sdk.files import FILE_TABLES, FilesDatabase

FILE: Final = "file_search.sqlite3"
_VERSIONS: Final = (
    FILE_TABLES
    + """CREATE TABLE stores (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT, metadata TEXT NOT NULL, created_at INTEGER NOT NULL, last_active_at INTEGER NOT NULL,
    expires_days INTEGER);
CREATE INDEX stores_of_owner ON stores (owner, seq);
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    store INTEGER NOT NULL REFERENCES stores (seq) ON DELETE CASCADE, created_at INTEGER NOT NULL);
CREATE TABLE store_files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL REFERENCES stores (seq) ON DELETE CASCADE,
    file INTEGER NOT NULL REFERENCES files (seq), batch INTEGER, created_at INTEGER NOT NULL, attributes TEXT NOT NULL,
    chunk_tokens INTEGER NOT NULL, overlap_tokens INTEGER NOT NULL, status TEXT NOT NULL, error_code TEXT,
    error_message TEXT, usage_bytes INTEGER NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, UNIQUE (store, file));
CREATE INDEX store_files_of_file ON store_files (file);
CREATE INDEX store_files_of_batch ON store_files (batch);
CREATE INDEX store_files_to_read ON store_files (lease) WHERE status = 'in_progress';
CREATE TABLE chunks (id INTEGER PRIMARY KEY, start INTEGER NOT NULL, text TEXT NOT NULL);
""",
    """
CREATE TABLE spaces (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, dimensions INTEGER NOT NULL, probe BLOB NOT NULL,
    chosen INTEGER NOT NULL);
CREATE TABLE vectors (chunk INTEGER PRIMARY KEY, space INTEGER NOT NULL, data BLOB NOT NULL);
ALTER TABLE store_files ADD COLUMN space INTEGER;
CREATE INDEX store_files_by_space ON store_files (space) WHERE status = 'completed';
""",
    """
ALTER TABLE files ADD COLUMN old INTEGER NOT NULL DEFAULT 0;
UPDATE files SET old = 1;
CREATE INDEX old_files ON files (seq) WHERE old = 1;
""",
)
"""Statements that migrate each version of the database to the next. Until the third, uploaded files were kept here; those
are marked as `old` until `old_files` has moved them. Since then, `files` has references to files of `/v1/files`."""


_CHECK: Final = """
CREATE VIRTUAL TABLE temp.probe USING fts5(text);
DROP TABLE temp.probe"""


class VectorStoreDatabase(FilesDatabase):
    """The database in `folder`. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        """Creates missing tables and folders. Raises `ConfigurationError`."""
        super().__init__(
            folder / FILE,
            _VERSIONS,
            name="The files",
            setting="tools.file_search.path",
            check=_CHECK,
        )
