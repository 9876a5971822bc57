"""Files of vector stores, and batches of them, in the database."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from functools import partial

from gateway.sdk import InvalidRequest, NotFound, ParamPath
from gateway.sdk.files import FileObject, ListQuery, no_such_file, page
from gateway.sdk.wire import Deleted, new_id
from gateway_file_search import stores
from gateway_file_search.chunks import DocumentChunk, joined
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.numbering import span_of
from gateway_file_search.objects import (
    Attributes,
    CompleteList,
    FileBatch,
    LastError,
    SearchResultText,
    StaticChunking,
    StaticSizes,
    Status,
    VectorStoreFile,
)
from gateway_file_search.requests import Attachment
from gateway_file_search.stored_chunks import remove_chunks


def attach(
    connection: sqlite3.Connection,
    store: sqlite3.Row,
    wanted: Sequence[Attachment],
    files: Mapping[str, FileObject],
    config: FileSearchConfig,
    *,
    batch: int | None = None,
) -> None:
    """Add those of the owner's `files` that are wanted to a vector store, to be indexed. A file that is in it already is
    indexed again. Raises `NotFound` if one is not among `files`."""
    for each in wanted:
        if each.file_id not in files:
            raise no_such_file(each.file_id, each.param)
        file = _stored_file_number(connection, store["owner"], files[each.file_id])
        old = connection.execute(
            "DELETE FROM store_files WHERE store = ? AND file = ? RETURNING seq",
            (store["seq"], file),
        ).fetchall()
        for row in old:
            remove_chunks(connection, store["seq"], row["seq"])
        connection.execute(
            "INSERT INTO store_files (store, file, batch, created_at, attributes, chunk_tokens, overlap_tokens, status) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'in_progress')",
            (
                store["seq"], file, batch, int(time.time()), json.dumps(each.attributes),
                each.sizes.max_chunk_size_tokens, each.sizes.chunk_overlap_tokens,
            ),
        )  # fmt: skip
    [number] = connection.execute(
        "SELECT count(*) FROM store_files WHERE store = ?", (store["seq"],)
    ).fetchone()
    if number > config.max_files_per_store:
        raise InvalidRequest(
            f"A vector store has at most {config.max_files_per_store} files on this server.",
            param=wanted[0].param if wanted else (),
            code="too_many_files",
        )
    connection.execute(
        "UPDATE stores SET last_active_at = ? WHERE seq = ?", (int(time.time()), store["seq"])
    )


def _stored_file_number(connection: sqlite3.Connection, owner: str, file: FileObject) -> int:
    """The number of a file in this database, which has what lists and searches show of it."""
    row = connection.execute(
        "INSERT INTO files (id, owner, bytes, created_at, filename, purpose, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner RETURNING seq",
        (file.id, owner, file.bytes, file.created_at, file.filename, file.purpose, file.expires_at),
    ).fetchone()
    number: int = row["seq"]
    return number


def find(
    connection: sqlite3.Connection,
    owner: str,
    store_id: str,
    file_id: str,
    param: str | ParamPath = (),
) -> sqlite3.Row:
    """The row of a file in a vector store. Raises `NotFound`."""
    store = stores.find(connection, owner, store_id)
    row: sqlite3.Row | None = connection.execute(
        "SELECT store_files.*, files.id, files.filename FROM store_files JOIN files ON files.seq = file "
        "WHERE store = ? AND files.id = ?",
        (store["seq"], file_id),
    ).fetchone()
    if row is None:
        raise NotFound(
            f"No file '{file_id[:100]}' found in the vector store '{store_id}'.",
            param=param,
            code="file_not_found",
        )
    return row


def get(connection: sqlite3.Connection, owner: str, store_id: str, file_id: str) -> VectorStoreFile:
    return _object(connection, find(connection, owner, store_id, file_id), store_id)


def listed(
    connection: sqlite3.Connection,
    owner: str,
    store_id: str,
    query: ListQuery,
    *,
    batch_id: str | None = None,
) -> tuple[list[VectorStoreFile], bool]:
    """A page of a vector store's files, or of a batch's, and whether there are more."""
    column, number = "store", stores.find(connection, owner, store_id)["seq"]
    if batch_id is not None:
        column, number = "batch", find_batch(connection, owner, store_id, batch_id)["seq"]
    rows, more = page(
        connection,
        "store_files",
        f"{column} = ? AND (? IS NULL OR status = ?)",
        (number, query.chosen, query.chosen),
        query,
        partial(find, connection, owner, store_id),
    )
    return [_object(connection, row, store_id) for row in rows], more


def update(
    connection: sqlite3.Connection, owner: str, store_id: str, file_id: str, attributes: Attributes
) -> VectorStoreFile:
    """Replace the attributes of a file."""
    row = find(connection, owner, store_id, file_id)
    connection.execute(
        "UPDATE store_files SET attributes = ? WHERE seq = ?", (json.dumps(attributes), row["seq"])
    )
    return get(connection, owner, store_id, file_id)


def delete(connection: sqlite3.Connection, owner: str, store_id: str, file_id: str) -> Deleted:
    """Remove a file from a vector store; the file itself stays."""
    row = find(connection, owner, store_id, file_id)
    remove_chunks(connection, row["store"], row["seq"])
    connection.execute("DELETE FROM store_files WHERE seq = ?", (row["seq"],))
    return Deleted(id=file_id, object="vector_store.file.deleted")


def forget(connection: sqlite3.Connection, file_ids: Sequence[str]) -> None:
    """Remove files, by their ids, from all vector stores."""
    for file_id in file_ids:
        for row in connection.execute(
            "DELETE FROM store_files WHERE file = (SELECT seq FROM files WHERE id = ?) RETURNING seq, store",
            (file_id,),
        ).fetchall():
            remove_chunks(connection, row["store"], row["seq"])
        connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def text(connection: sqlite3.Connection, owner: str, store_id: str, file_id: str) -> CompleteList:
    """The text extracted from a file."""
    row = find(connection, owner, store_id, file_id)
    span = span_of(row["seq"])
    found = connection.execute(
        "SELECT start, text FROM chunks WHERE id >= ? AND id < ? ORDER BY id", span
    )
    whole = joined([DocumentChunk(each["start"], each["text"]) for each in found])
    return CompleteList(
        object="vector_store.file_content.page",
        data=[SearchResultText(text=whole)] if row["status"] == "completed" else [],
        file_id=file_id,
        filename=row["filename"],
        attributes=json.loads(row["attributes"]),
    )


# Batches.


def insert_batch(
    connection: sqlite3.Connection,
    owner: str,
    store_id: str,
    wanted: Sequence[Attachment],
    files: Mapping[str, FileObject],
    config: FileSearchConfig,
) -> FileBatch:
    store = stores.find_usable(connection, owner, store_id)
    row = connection.execute(
        "INSERT INTO batches (id, store, created_at) VALUES (?, ?, ?) RETURNING *",
        (new_id("vsfb_"), store["seq"], int(time.time())),
    ).fetchone()
    attach(connection, store, wanted, files, config, batch=row["seq"])
    return _batch(connection, row, store_id)


def find_batch(
    connection: sqlite3.Connection, owner: str, store_id: str, batch_id: str
) -> sqlite3.Row:
    """The row of a batch. Raises `NotFound`."""
    store = stores.find(connection, owner, store_id)
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM batches WHERE id = ? AND store = ?", (batch_id, store["seq"])
    ).fetchone()
    if row is None:
        raise NotFound(
            f"No file batch '{batch_id[:100]}' found in the vector store '{store_id}'.",
            code="file_batch_not_found",
        )
    return row


def get_batch(
    connection: sqlite3.Connection, owner: str, store_id: str, batch_id: str
) -> FileBatch:
    return _batch(connection, find_batch(connection, owner, store_id, batch_id), store_id)


def cancel_batch(
    connection: sqlite3.Connection, owner: str, store_id: str, batch_id: str
) -> FileBatch:
    """Cancel a batch: its files that were not indexed yet are not read."""
    row = find_batch(connection, owner, store_id, batch_id)
    for each in connection.execute(
        "UPDATE store_files SET status = 'cancelled' WHERE batch = ? AND status = 'in_progress' RETURNING seq, store",
        (row["seq"],),
    ).fetchall():
        remove_chunks(connection, each["store"], each["seq"])
    return _batch(connection, row, store_id)


def _batch(connection: sqlite3.Connection, row: sqlite3.Row, store_id: str) -> FileBatch:
    counts, _ = stores.counted(connection, "batch", row["seq"])
    status: Status = "completed"
    if counts.in_progress:
        status = "in_progress"
    elif counts.cancelled:
        status = "cancelled"
    elif counts.failed and counts.failed == counts.total:
        status = "failed"
    return FileBatch(
        id=row["id"],
        created_at=row["created_at"],
        vector_store_id=store_id,
        status=status,
        file_counts=counts,
    )


def _object(connection: sqlite3.Connection, row: sqlite3.Row, store_id: str) -> VectorStoreFile:
    file_id = (
        row["id"]
        if "id" in row.keys()  # noqa: SIM118 (a Row's own `in` looks at its values)
        else connection.execute("SELECT id FROM files WHERE seq = ?", (row["file"],)).fetchone()[
            "id"
        ]
    )
    sizes = StaticSizes(
        max_chunk_size_tokens=row["chunk_tokens"], chunk_overlap_tokens=row["overlap_tokens"]
    )
    error = row["error_code"]
    return VectorStoreFile(
        id=file_id,
        created_at=row["created_at"],
        usage_bytes=row["usage_bytes"],
        vector_store_id=store_id,
        status=row["status"],
        last_error=LastError(code=error, message=row["error_message"]) if error else None,
        attributes=json.loads(row["attributes"]),
        chunking_strategy=StaticChunking(static=sizes),
    )
