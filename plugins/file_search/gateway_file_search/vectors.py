"""Vectors of chunks in the database: storage and comparison with query vectors."""

from __future__ import annotations

import importlib
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from heapq import heappush, heappushpop
from operator import mul
from typing import Any, Final

from gateway.sdk.engines import bytes_of, vector_of_bytes
from gateway_file_search.numbering import span_of

_SAME: Final = 0.999
"""Minimum cosine of two vectors of the same text that count as made by the same model. It is never exactly 1, because
kernels and batches differ."""
_AT_ONCE: Final = 512
"""Number of vectors held in memory at a time."""


def space_of(connection: sqlite3.Connection, model: str, probe: Sequence[array[float]]) -> int:
    """The number of the vector space in which the fixed texts have the vectors `probe`. Makes it the current space.

    A model's name does not tell whether its vectors are comparable with those that it made earlier.
    """
    found = None
    for row in connection.execute("SELECT seq, dimensions, probe FROM spaces ORDER BY seq DESC"):
        known = _cut(vector_of_bytes(row["probe"]), row["dimensions"])
        if len(known) == len(probe) and all(map(_are_same, known, probe)):
            found = int(row["seq"])
            break
    if found is None:
        [found] = connection.execute(
            "INSERT INTO spaces (model, dimensions, probe, chosen) VALUES (?, ?, ?, 0) RETURNING seq",
            (model, len(probe[0]), b"".join(map(bytes_of, probe))),
        ).fetchone()
    connection.execute(
        "UPDATE spaces SET chosen = (SELECT max(chosen) + 1 FROM spaces) WHERE seq = ?", (found,)
    )
    return int(found)


def is_current(connection: sqlite3.Connection, space: int) -> bool:
    """Whether `space` is the one that a process chose last."""
    row = connection.execute("SELECT seq FROM spaces ORDER BY chosen DESC LIMIT 1").fetchone()
    return row is not None and row["seq"] == space


def missing(
    connection: sqlite3.Connection, space: int, file: int, most: int
) -> list[tuple[int, str]]:
    """Up to a given number of chunks of a file that have no vector in `space`: ids and texts."""
    return [
        (row["id"], row["text"])
        for row in connection.execute(
            "SELECT id, text FROM chunks LEFT JOIN vectors ON chunk = id AND space = ? "
            "WHERE id >= ? AND id < ? AND chunk IS NULL ORDER BY id LIMIT ?",
            (space, *span_of(file), most),
        )
    ]


def keep(
    connection: sqlite3.Connection,
    space: int,
    vectors: Iterable[tuple[int, array[float] | None]],
) -> None:
    """Store the vectors of chunks, replacing those of other spaces. None means that the chunk has no vector in this
    space."""
    connection.executemany(
        "INSERT OR REPLACE INTO vectors (chunk, space, data) VALUES (?, ?, ?)",
        [(chunk, space, b"" if vector is None else bytes_of(vector)) for chunk, vector in vectors],
    )


def nearest(
    connection: sqlite3.Connection,
    space: int,
    queries: Sequence[array[float]],
    files: Iterable[int],
    most: int,
    *,
    check: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """For each query, the `most` nearest chunks of the given files, nearest first.

    Compares every vector of the files: the time is proportional to their number. `check` is called before each few, and may raise.
    """
    best: list[list[tuple[float, int]]] = [[] for _ in queries]
    for ids, stored in _vector_batches(connection, space, files):
        check()
        for heap, cosines in zip(best, _dot_products(stored, queries), strict=True):
            for chunk, cosine in zip(ids, cosines, strict=True):
                # Ties are won by the first chunk.
                if len(heap) < most:
                    heappush(heap, (cosine, -chunk))
                elif (cosine, -chunk) > heap[0]:
                    heappushpop(heap, (cosine, -chunk))
    return [[-chunk for _, chunk in sorted(heap, reverse=True)] for heap in best]


def _vector_batches(
    connection: sqlite3.Connection, space: int, files: Iterable[int]
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Batches of chunk ids and their vectors."""
    ids: list[int] = []
    data: list[bytes] = []
    for file in files:
        for row in connection.execute(
            "SELECT chunk, data FROM vectors WHERE chunk >= ? AND chunk < ? AND space = ? AND data != x''",
            (*span_of(file), space),
        ):
            ids.append(row["chunk"])
            data.append(row["data"])
            if len(ids) == _AT_ONCE:
                yield ids, data
                ids, data = [], []
    if ids:
        yield ids, data


def _dot_products(
    stored: Sequence[bytes], queries: Sequence[array[float]]
) -> Sequence[Sequence[float]]:
    """For each query, its dot products with the stored vectors. They are cosines, because all vectors have length 1."""
    numpy = _numpy()
    if numpy is None:
        vectors = [vector_of_bytes(each) for each in stored]
        return [[sum(map(mul, query, vector)) for vector in vectors] for query in queries]
    matrix = numpy.frombuffer(b"".join(stored), dtype="<f4").reshape(len(stored), -1)
    products: list[list[float]] = (numpy.array(queries, dtype="<f4") @ matrix.T).tolist()
    return products


@cache
def _numpy() -> Any:
    """NumPy if it is installed (about a hundred times faster), else None."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def _cut(numbers: array[float], length: int) -> list[array[float]]:
    return [numbers[at : at + length] for at in range(0, len(numbers), length)]


def _are_same(one: array[float], other: array[float]) -> bool:
    return len(one) == len(other) and sum(map(mul, one, other)) >= _SAME
