"""Searches vector stores by words and, if available, by vectors."""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from gateway_file_search import vectors
from gateway_file_search.filters import Filter
from gateway_file_search.numbering import CHUNKS_OF_A_FILE
from gateway_file_search.ranking import Ranking, fused
from gateway_file_search.words import phrases, ranked, words_of_each

_CANDIDATES: Final = 4
"""How many times the requested number of chunks is ranked."""
_ACTIVE_SECONDS = 60
"""A search marks a store as active; this is the resolution of that time in seconds."""


class QueryVectors(Struct, frozen=True):
    """The vectors of queries, one per query."""

    space: int
    vectors: Sequence[array[float]]


class Hit(Struct, frozen=True, kw_only=True):
    """A search result."""

    file_id: str
    filename: str
    score: float
    """From 0 to 1. Without vectors: how well the words match (see `words.ranked`). With vectors: the fusion of both
    rankings. For several queries: the mean of the best score and the average."""
    attributes: dict[str, Any]
    text: str


def search(
    connection: sqlite3.Connection,
    stores: Sequence[int],
    queries: Sequence[str],
    *,
    near: QueryVectors | None = None,
    wanted: Filter | None,
    limit: int,
    threshold: float,
    ranking: Ranking,
    check: Callable[[], None],
) -> list[Hit]:
    """The best `limit` chunks of the numbered stores for any of `queries`, best first, with scores of `threshold` or more.

    `near` contains the queries' vectors. Without it, the search is by words only, whatever the weights. `check` is called again and
    again, and may raise.
    """
    files: dict[int, sqlite3.Row] = {}
    words: list[dict[int, float]] = [{} for _ in queries]
    terms = [phrases(query, words_of_each(len(queries))) for query in queries]

    def is_wanted(attributes: str) -> bool:
        check()
        return wanted is None or wanted(json.loads(attributes))

    for store in stores:
        chosen = {
            row["seq"]: row
            for row in connection.execute(
                "SELECT store_files.seq, attributes, files.id, filename FROM store_files JOIN files "
                "ON files.seq = file WHERE store = ? AND status = 'completed'",
                (store,),
            )
            if is_wanted(row["attributes"])
        }
        files.update(chosen)
        if chosen and (near is None or ranking.text_weight):
            for found, phrases_of_query in zip(words, terms, strict=True):
                found.update(
                    ranked(
                        connection,
                        store,
                        phrases_of_query,
                        chosen,
                        limit * _CANDIDATES,
                        check=check,
                    )
                )
    scores: Sequence[Mapping[int, float]] = words
    if near is not None:
        by_vectors = vectors.nearest(
            connection, near.space, near.vectors, files, limit * _CANDIDATES, check=check
        )
        scores = [
            fused([(ranking.embedding_weight, nearby), (ranking.text_weight, _best_first(found))])
            for found, nearby in zip(words, by_vectors, strict=True)
        ]
    best = _best(scores)
    return [
        _hit(connection, chunk, best[chunk], files[chunk >> CHUNKS_OF_A_FILE])
        for chunk in _best_first(best)[:limit]
        if best[chunk] >= threshold
    ]


def _best(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Combine the scores for several queries into one score per chunk."""
    together: dict[int, list[float]] = {}
    for each in scores:
        for chunk, score in each.items():
            together.setdefault(chunk, []).append(score)
    return {
        chunk: round((max(found) + sum(found) / len(scores)) / 2, 6)
        for chunk, found in together.items()
    }


def _best_first(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda chunk: (-scores[chunk], chunk))


def _hit(connection: sqlite3.Connection, chunk: int, score: float, file: sqlite3.Row) -> Hit:
    found = connection.execute("SELECT text FROM chunks WHERE id = ?", (chunk,)).fetchone()
    return Hit(
        file_id=file["id"],
        filename=file["filename"],
        score=score,
        attributes=json.loads(file["attributes"]),
        text=found["text"] if found else "",
    )


def mark_active(connection: sqlite3.Connection, stores: Sequence[int]) -> None:
    """Mark the stores as active now."""
    now = int(time.time())
    connection.executemany(
        "UPDATE stores SET last_active_at = ? WHERE seq = ? AND last_active_at < ?",
        [(now, store, now - _ACTIVE_SECONDS) for store in stores],
    )
