"""Opening the file: creating it, checking it for damage, and migrating its schema."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from gateway.sdk import ConfigurationError
from gateway_sql import VERSIONS
from gateway_sqlite.config import SqliteConfig
from gateway_sqlite.connections import connect

APPLICATION_ID: Final = 0x4C477374
"""SQLite's application id of these files ("LGst")."""
OLDEST_SQLITE: Final = (3, 35, 0)

_TYPES: Final = {"identity": "INTEGER PRIMARY KEY AUTOINCREMENT", "bytes": "BLOB"}
_WITHOUT_ROWID: Final = (
    "items",
    "events",
    "conversation_items",
    "shared_values",
    "leases",
    "part_uses",
)


def prepare(path: Path, config: SqliteConfig, versions: Sequence[Sequence[str]] = VERSIONS) -> None:
    """Create the file, or check and migrate it. Raises `ConfigurationError`, whose message says what is wrong and what
    to do."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigurationError(
            f"The store 'sqlite' needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Responses are private: only this user may read the file. SQLite's other files get the same
        # permissions.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # Not truncated: in a folder that others may write to, it may be a link to a file of this
        # user.
        with Path(f"{path}.lock").open("ab") as opening:
            # SQLite does not wait if two processes set the journal mode at the same time.
            fcntl.flock(opening, fcntl.LOCK_EX)
            with closing(
                connect(path, timeout=config.timeout, synchronous="full", read_only=False)
            ) as connection:
                _prepare(path, connection, config, versions)
    except OSError as error:
        raise ConfigurationError(
            f"The store 'sqlite' cannot open {str(path)!r}: {error.strerror or error}. Correct path under [stores.sqlite] "
            'or its permissions, or set store = "memory" under [server].'
        ) from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
            raise _damaged(path, str(error)) from error
        raise ConfigurationError(
            f"The store 'sqlite' cannot open {str(path)!r}: {error}. Correct path under [stores.sqlite], or make room."
        ) from error


def _prepare(
    path: Path,
    connection: sqlite3.Connection,
    config: SqliteConfig,
    versions: Sequence[Sequence[str]],
) -> None:
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise ConfigurationError(
            f"{str(path)!r} is a database of another program: set path under [stores.sqlite] to a file of its own."
        )
    if version > len(versions):
        raise ConfigurationError(
            f"{str(path)!r} was written by a newer release of the store 'sqlite' (its schema is of version {version}, this release "
            f"knows {len(versions)}): install that release, or set path under [stores.sqlite] to another file."
        )
    if tables and config.check != "off":
        pragma = "quick_check" if config.check == "quick" else "integrity_check"
        [found] = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
        if found != "ok":
            raise _damaged(path, str(found))
    if not tables:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigurationError(
            f"The file system of {str(path)!r} does not support SQLite's WAL: set path under [stores.sqlite] to a local disk."
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        for changes in versions[version:]:
            for statement in changes:
                connection.execute(_in_dialect(statement))
        connection.execute(f"PRAGMA user_version = {len(versions)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _in_dialect(statement: str) -> str:
    sql = statement.format_map(_TYPES)
    if any(sql.startswith(f"CREATE TABLE {table} ") for table in _WITHOUT_ROWID):
        sql += " WITHOUT ROWID"
    return sql


def _damaged(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{str(path)!r} is damaged ({reason}): put back a backup, or move the file away to begin with an empty one."
    )
