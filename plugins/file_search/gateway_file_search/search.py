"""Searching a vector store's index: BM25 of SQLite's FTS5."""

# ruff: noqa: S608 (what is put into statements are names of our own tables and columns; values are bound)

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from gateway_file_search.filters import Filter

CHUNKS_OF_A_FILE: Final = 20
"""Bits of a chunk's id that count within its file; those above are the file's number."""
_MOST_WORDS = 48
_CANDIDATES = 4
"""How many times the wanted number of chunks is ranked by words."""
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
"""Scripts that are written without spaces: each character is a word, and pairs are looked for."""
_ACTIVE_SECONDS = 60
"""A search makes a store active again, and this is how exactly that is noted."""


class Hit(Struct, frozen=True, kw_only=True):
    """A chunk that was found."""

    file_id: str
    filename: str
    score: float
    """From 0 to 1: half of it is the share of the query's words that the chunk has, rare ones counting for more; half
    its BM25, relative to the best. Of several queries, the mean of the best score and of the average."""
    attributes: dict[str, Any]
    text: str


def spaced(text: str) -> str:
    """As text is indexed."""
    return _WIDE.sub(lambda found: f" {' '.join(found[0])} ", text)


def phrases(query: str) -> list[str]:
    """What is looked for, each an expression of FTS5: the query's words, and pairs of characters of wide scripts."""
    found: dict[str, None] = {}
    for word in _WORD.findall(query.casefold()):
        for wide in _WIDE.findall(word):
            pairs = [wide[at : at + 2] for at in range(max(len(wide) - 1, 1))]
            found.update(dict.fromkeys(f'"{" ".join(pair)}"' for pair in pairs))
        found.update(dict.fromkeys(f'"{part}"' for part in _WIDE.split(word) if part))
    return list(found)[:_MOST_WORDS]


def search(
    connection: sqlite3.Connection,
    stores: Sequence[int],
    queries: Sequence[str],
    *,
    wanted: Filter | None,
    limit: int,
    threshold: float,
) -> list[Hit]:
    """The best `limit` chunks of the stores of these numbers for any of `queries`, best first."""
    scores: dict[int, list[float]] = {}
    files: dict[int, sqlite3.Row] = {}
    for store in stores:
        chosen = {
            row["seq"]: row
            for row in connection.execute(
                "SELECT store_files.seq, attributes, files.id, filename FROM store_files JOIN files "
                "ON files.seq = file WHERE store = ? AND status = 'completed'",
                (store,),
            )
            if wanted is None or wanted(json.loads(row["attributes"]))
        }
        files.update(chosen)
        if not chosen:
            continue
        for query in queries:
            for chunk, score in _ranked(connection, store, phrases(query), chosen, limit):
                scores.setdefault(chunk, []).append(score)
    best = {
        chunk: round((max(found) + sum(found) / len(queries)) / 2, 6)
        for chunk, found in scores.items()
    }
    ordered = sorted(best, key=lambda chunk: (-best[chunk], chunk))
    return [
        _hit(connection, chunk, best[chunk], files[chunk >> CHUNKS_OF_A_FILE])
        for chunk in ordered[:limit]
        if best[chunk] >= threshold
    ]


def _ranked(
    connection: sqlite3.Connection, store: int, wanted: list[str], files: dict[int, Any], limit: int
) -> Iterator[tuple[int, float]]:
    if not wanted:
        return
    table = index_of(store)
    rows = connection.execute(
        f"SELECT rowid, bm25({table}) AS rank FROM {table} WHERE {table} MATCH ? "
        f"AND (rowid >> {CHUNKS_OF_A_FILE}) IN (SELECT value FROM json_each(?)) ORDER BY rank, rowid LIMIT ?",
        (" OR ".join(wanted), json.dumps(list(files)), limit * _CANDIDATES),
    ).fetchall()
    if not rows:
        return
    among = json.dumps([row["rowid"] for row in rows])
    # FTS5's own table of the sizes of rows: counting the rows themselves would read all text.
    [total] = connection.execute(f"SELECT count(*) FROM {table}_docsize").fetchone()
    weights = dict.fromkeys((row["rowid"] for row in rows), 0.0)
    whole = 0.0
    for phrase in wanted:
        [number] = connection.execute(
            f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (phrase,)
        ).fetchone()
        weight = math.log(1 + (total + 1) / (number + 0.5))
        whole += weight
        for [chunk] in connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? "
            "AND rowid IN (SELECT value FROM json_each(?))",
            (phrase, among),
        ):
            weights[chunk] += weight
    least = rows[0]["rank"] or -1.0  # FTS5's is negative, the best least
    for row in rows:
        yield (
            row["rowid"],
            round(0.5 * weights[row["rowid"]] / whole + 0.5 * row["rank"] / least, 6),
        )


def _hit(connection: sqlite3.Connection, chunk: int, score: float, file: sqlite3.Row) -> Hit:
    found = connection.execute("SELECT text FROM chunks WHERE id = ?", (chunk,)).fetchone()
    return Hit(
        file_id=file["id"],
        filename=file["filename"],
        score=score,
        attributes=json.loads(file["attributes"]),
        text=found["text"] if found else "",
    )


def note_use(connection: sqlite3.Connection, stores: Sequence[int]) -> None:
    """The stores are active now."""
    now = int(time.time())
    connection.executemany(
        "UPDATE stores SET last_active_at = ? WHERE seq = ? AND last_active_at < ?",
        [(now, store, now - _ACTIVE_SECONDS) for store in stores],
    )


def index_of(store: int) -> str:
    """The name of a vector store's index: its own, so that what others store does not weigh in."""
    return f"index_{int(store)}"


def make_index(connection: sqlite3.Connection, store: int) -> None:
    connection.execute(
        f"CREATE VIRTUAL TABLE {index_of(store)} USING fts5(text, "
        "tokenize = 'porter unicode61 remove_diacritics 2')"
    )


def drop_index(connection: sqlite3.Connection, store: int) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {index_of(store)}")


def add_chunks(
    connection: sqlite3.Connection,
    store: int,
    file: int,
    first: int,
    chunks: Sequence[tuple[int, str]],
) -> None:
    """Index chunks of a file, each with its start; `first` is the first one's number within the file."""
    base = (file << CHUNKS_OF_A_FILE) + first
    numbered = [(base + at, start, text) for at, (start, text) in enumerate(chunks)]
    connection.executemany("INSERT INTO chunks (id, start, text) VALUES (?, ?, ?)", numbered)
    connection.executemany(
        f"INSERT INTO {index_of(store)} (rowid, text) VALUES (?, ?)",
        [(chunk, spaced(text)) for chunk, _, text in numbered],
    )


def remove_chunks(connection: sqlite3.Connection, store: int | None, file: int) -> None:
    """Forget a file's chunks; with `store` None, its index is gone already."""
    span = file << CHUNKS_OF_A_FILE, (file + 1) << CHUNKS_OF_A_FILE
    if store is not None:
        connection.execute(f"DELETE FROM {index_of(store)} WHERE rowid >= ? AND rowid < ?", span)
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", span)
