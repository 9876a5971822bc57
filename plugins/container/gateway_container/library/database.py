"""The SQLite database of containers and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.sdk.files import CONTENTS_TABLE, FilesDatabase

FILE: Final = "containers.sqlite3"
_VERSIONS: Final = (
    f"""
CREATE TABLE containers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    created_at REAL NOT NULL, active_at REAL NOT NULL, minutes INTEGER NOT NULL, memory TEXT, made_by TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 0, starts INTEGER NOT NULL DEFAULT 0);
CREATE INDEX containers_of_owner ON containers (owner, seq);
CREATE TABLE files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    container INTEGER NOT NULL REFERENCES containers (seq) ON DELETE CASCADE, path TEXT NOT NULL,
    bytes INTEGER NOT NULL, created_at REAL NOT NULL, source TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0,
    UNIQUE (container, path));
{CONTENTS_TABLE}""",
)


class ContainerDatabase(FilesDatabase):
    """The database in `folder`. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        """Creates missing tables and folders. Raises `ConfigurationError`."""
        super().__init__(
            folder / FILE,
            _VERSIONS,
            name="The containers",
            setting="resources.containers.path",
        )
