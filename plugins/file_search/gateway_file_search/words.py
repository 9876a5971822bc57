"""Full-text search: one index per vector store, ranked with BM25 by SQLite's FTS5."""

# ruff: noqa: S608 (statements are composed only of our own table and column names; values are bound)

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway_file_search.numbering import CHUNKS_OF_A_FILE

_MAX_WORDS = 48
"""Maximum number of terms of one query that are searched for."""
_MAX_WORDS_TOGETHER = 192
"""Maximum number of terms of all queries of a search: each costs time in proportion to what contains it."""
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
"""Scripts written without spaces. Each character is indexed as a word, and queries use pairs."""


def spaced(text: str) -> str:
    """The text in the form in which it is indexed."""
    return _WIDE.sub(lambda found: f" {' '.join(found[0])} ", text)


def words_of_each(queries: int) -> int:
    """How many terms of each of so many queries are searched for."""
    return max(1, min(_MAX_WORDS, _MAX_WORDS_TOGETHER // max(1, queries)))


def phrases(query: str, most: int = _MAX_WORDS) -> list[str]:
    """The first `most` terms of a query as FTS5 expressions: its words, and pairs of characters for scripts without spaces."""
    found: dict[str, None] = {}
    for word in _WORD.findall(query.casefold()):
        for wide in _WIDE.findall(word):
            pairs = [wide[at : at + 2] for at in range(max(len(wide) - 1, 1))]
            found.update(dict.fromkeys(f'"{" ".join(pair)}"' for pair in pairs))
        found.update(dict.fromkeys(f'"{part}"' for part in _WIDE.split(word) if part))
    return list(found)[:most]


def ranked(
    connection: sqlite3.Connection,
    store: int,
    wanted: Sequence[str],
    files: Iterable[int],
    most: int,
    *,
    check: Callable[[], None],
) -> Iterator[tuple[int, float]]:
    """The best `most` chunks of these files of a store, with scores from 0 to 1.

    `wanted` are the terms of the query (`phrases`). `check` is called before each: it may raise.

    Half of the score is the share of the query's words that the chunk contains, weighted by rarity; the other half
    is its BM25 relative to the best chunk.
    """
    if not wanted:
        return
    table = index_of(store)
    rows = connection.execute(
        f"SELECT rowid, bm25({table}) AS rank FROM {table} WHERE {table} MATCH ? "
        f"AND (rowid >> {CHUNKS_OF_A_FILE}) IN (SELECT value FROM json_each(?)) ORDER BY rank, rowid LIMIT ?",
        (" OR ".join(wanted), json.dumps(list(files)), most),
    ).fetchall()
    if not rows:
        return
    among = json.dumps([row["rowid"] for row in rows])
    # FTS5's own table of row sizes; counting the rows themselves would read all text.
    [total] = connection.execute(f"SELECT count(*) FROM {table}_docsize").fetchone()
    weights = dict.fromkeys((row["rowid"] for row in rows), 0.0)
    whole = 0.0
    for phrase in wanted:
        check()
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
    least = rows[0]["rank"] or -1.0  # FTS5 ranks are negative; the best is the lowest
    for row in rows:
        yield (
            row["rowid"],
            round(0.5 * weights[row["rowid"]] / whole + 0.5 * row["rank"] / least, 6),
        )


def index_of(store: int) -> str:
    """The name of a vector store's index. Each store has its own, so that other stores do not influence its ranking."""
    return f"index_{int(store)}"


def make_index(connection: sqlite3.Connection, store: int) -> None:
    connection.execute(
        f"CREATE VIRTUAL TABLE {index_of(store)} USING fts5(text, "
        "tokenize = 'porter unicode61 remove_diacritics 2')"
    )


def drop_index(connection: sqlite3.Connection, store: int) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {index_of(store)}")


def add_to_index(
    connection: sqlite3.Connection, store: int, chunks: Sequence[tuple[int, str]]
) -> None:
    """Index chunks, given by id and text."""
    connection.executemany(
        f"INSERT INTO {index_of(store)} (rowid, text) VALUES (?, ?)",
        [(chunk, spaced(text)) for chunk, text in chunks],
    )


def remove_from_index(connection: sqlite3.Connection, store: int, span: tuple[int, int]) -> None:
    """Remove the chunks with ids in `span` from the index."""
    connection.execute(f"DELETE FROM {index_of(store)} WHERE rowid >= ? AND rowid < ?", span)
