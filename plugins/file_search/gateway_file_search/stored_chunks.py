"""The chunks of files in the database: their texts in the word index, and their vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gateway_file_search.numbering import span_of
from gateway_file_search.words import add_to_index, remove_from_index


def add_chunks(
    connection: sqlite3.Connection,
    store: int,
    file: int,
    first: int,
    chunks: Sequence[tuple[int, str]],
) -> None:
    """Index chunks of a file, each with its start. `first` is the number of the first one within the file."""
    base = span_of(file)[0] + first
    numbered = [(base + at, start, text) for at, (start, text) in enumerate(chunks)]
    connection.executemany("INSERT INTO chunks (id, start, text) VALUES (?, ?, ?)", numbered)
    add_to_index(connection, store, [(chunk, text) for chunk, _, text in numbered])


def remove_chunks(connection: sqlite3.Connection, store: int | None, file: int) -> None:
    """Delete a file's chunks. If `store` is None, its index was deleted already."""
    span = span_of(file)
    if store is not None:
        remove_from_index(connection, store, span)
    connection.execute("DELETE FROM vectors WHERE chunk >= ? AND chunk < ?", span)
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", span)
