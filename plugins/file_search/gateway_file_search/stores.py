"""Vector stores in the database."""

# ruff: noqa: S608 (statements are composed only of our own table and column names; values are bound)

from __future__ import annotations

import json
import sqlite3
import time
from functools import partial
from typing import Final

from msgspec import UNSET

from gateway.sdk import InvalidRequest, NotFound, ParamPath
from gateway.sdk.files import ListQuery, page
from gateway.sdk.wire import Deleted, new_id
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.objects import ExpiresAfter, FileCounts, VectorStore
from gateway_file_search.requests import CreateStore, UpdateStore
from gateway_file_search.stored_chunks import remove_chunks
from gateway_file_search.words import drop_index, make_index

_DAY: Final = 86_400


def insert(
    connection: sqlite3.Connection,
    owner: str,
    request: CreateStore,
    metadata: dict[str, str],
    config: FileSearchConfig,
) -> sqlite3.Row:
    """Create a vector store without files."""
    [number] = connection.execute(
        "SELECT count(*) FROM stores WHERE owner = ?", (owner,)
    ).fetchone()
    if number >= config.max_vector_stores:
        raise InvalidRequest(
            f"You have {number} vector stores, this server's limit. Delete some.",
            code="too_many_vector_stores",
        )
    now = int(time.time())
    row: sqlite3.Row = connection.execute(
        "INSERT INTO stores (id, owner, name, description, metadata, created_at, last_active_at, expires_days) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            new_id("vs_"), owner, request.name, request.description, json.dumps(metadata), now, now,
            request.expires_after.days if request.expires_after else None,
        ),
    ).fetchone()  # fmt: skip
    make_index(connection, row["seq"])
    return row


def find(
    connection: sqlite3.Connection, owner: str, store_id: str, param: str | ParamPath = ()
) -> sqlite3.Row:
    """The row of a vector store, even if it has expired. Raises `NotFound`."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM stores WHERE id = ? AND owner = ?", (store_id, owner)
    ).fetchone()
    if row is None:
        raise NotFound(
            f"Vector store with id '{store_id[:100]}' not found.",
            param=param,
            code="vector_store_not_found",
        )
    return row


def find_usable(
    connection: sqlite3.Connection, owner: str, store_id: str, param: str | ParamPath = ()
) -> sqlite3.Row:
    """Like `find`, but raises `InvalidRequest` if the store has expired."""
    row = find(connection, owner, store_id, param)
    if _is_expired(row):
        raise InvalidRequest(
            f"The vector store '{store_id}' has expired. Make a new one.",
            param=param,
            code="vector_store_expired",
        )
    return row


def get(connection: sqlite3.Connection, owner: str, store_id: str) -> VectorStore:
    return object_of(connection, find(connection, owner, store_id))


def listed(
    connection: sqlite3.Connection, owner: str, query: ListQuery
) -> tuple[list[VectorStore], bool]:
    """A page of an owner's vector stores, and whether there are more."""
    rows, more = page(
        connection, "stores", "owner = ?", (owner,), query, partial(find, connection, owner)
    )
    return [object_of(connection, row) for row in rows], more


def update(
    connection: sqlite3.Connection,
    owner: str,
    store_id: str,
    request: UpdateStore,
    metadata: dict[str, str] | None,
) -> VectorStore:
    """Apply the changes of a request."""
    row = find(connection, owner, store_id)
    days = row["expires_days"]
    if request.expires_after is not UNSET:
        days = None if request.expires_after is None else request.expires_after.days
    connection.execute(
        "UPDATE stores SET name = ?, metadata = ?, expires_days = ?, last_active_at = ? WHERE seq = ?",
        (
            row["name"] if request.name is UNSET else request.name,
            row["metadata"] if metadata is None else json.dumps(metadata),
            days,
            row["last_active_at"] if _is_expired(row) else int(time.time()),
            row["seq"],
        ),
    )
    return get(connection, owner, store_id)


def delete(connection: sqlite3.Connection, owner: str, store_id: str) -> Deleted:
    """Delete a vector store; its files stay."""
    row = find(connection, owner, store_id)
    _empty(connection, row["seq"])
    drop_index(connection, row["seq"])
    connection.execute("DELETE FROM stores WHERE seq = ?", (row["seq"],))
    return Deleted(id=store_id, object="vector_store.deleted")


def empty_expired(connection: sqlite3.Connection) -> None:
    """Remove all files from expired vector stores, which remain as objects."""
    rows = connection.execute(
        "SELECT seq FROM stores WHERE last_active_at + expires_days * ? <= ? "
        "AND EXISTS (SELECT 1 FROM store_files WHERE store = stores.seq)",
        (_DAY, time.time()),
    ).fetchall()
    for row in rows:
        _empty(connection, row["seq"])
        drop_index(connection, row["seq"])
        make_index(connection, row["seq"])


def _empty(connection: sqlite3.Connection, store: int) -> None:
    for row in connection.execute(
        "SELECT seq FROM store_files WHERE store = ?", (store,)
    ).fetchall():
        remove_chunks(connection, None, row["seq"])
    connection.execute("DELETE FROM store_files WHERE store = ?", (store,))


def counted(connection: sqlite3.Connection, column: str, number: int) -> tuple[FileCounts, int]:
    """Number of files of a store or a batch by status, and the size of their text in bytes."""
    counts: dict[str, int] = {}
    used = 0
    for status, files, size in connection.execute(
        f"SELECT status, count(*), sum(usage_bytes) FROM store_files WHERE {column} = ? GROUP BY status",
        (number,),
    ):
        counts[status] = files
        used += size
    return FileCounts(**counts, total=sum(counts.values())), used


def object_of(connection: sqlite3.Connection, row: sqlite3.Row) -> VectorStore:
    counts, used = counted(connection, "store", row["seq"])
    days = row["expires_days"]
    return VectorStore(
        id=row["id"],
        created_at=row["created_at"],
        name=row["name"],
        description=row["description"],
        usage_bytes=used,
        file_counts=counts,
        status=(
            "expired" if _is_expired(row) else "in_progress" if counts.in_progress else "completed"
        ),
        expires_after=ExpiresAfter(anchor="last_active_at", days=days) if days else None,
        expires_at=_expiry(row),
        last_active_at=row["last_active_at"],
        metadata=json.loads(row["metadata"]),
    )


def _expiry(row: sqlite3.Row) -> int | None:
    days: int | None = row["expires_days"]
    return None if days is None else row["last_active_at"] + days * _DAY


def _is_expired(row: sqlite3.Row) -> bool:
    expiry = _expiry(row)
    return expiry is not None and expiry <= time.time()
