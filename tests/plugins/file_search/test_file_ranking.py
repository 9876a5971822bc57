"""Two rankings become one, and vectors are compared alike with NumPy and without."""

from __future__ import annotations

import math
import random
import sqlite3
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.vectors import normalized
from gateway.storage.files.database import transaction
from gateway_file_search import vectors
from gateway_file_search.database import FILE, VectorStoreDatabase
from gateway_file_search.numbering import span_of
from gateway_file_search.ranking import fused

RANKING = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(st.lists(st.tuples(st.floats(0.01, 10), RANKING), min_size=1, max_size=3))
def test_a_fusion_has_all_and_agrees_where_all_agree(
    rankings: list[tuple[float, list[int]]],
) -> None:
    scores = fused(rankings)
    assert set(scores) == {chunk for _, ranking in rankings for chunk in ranking}
    assert all(0 < score <= 1 + 1e-9 for score in scores.values())
    for one in scores:
        for other in scores:
            if all(
                one in ranking
                and (other not in ranking or ranking.index(one) < ranking.index(other))
                for _, ranking in rankings
            ):
                assert scores[one] > scores[other]


def test_the_weights_decide_between_two_opinions() -> None:
    for one, other in ((3.0, 1.0), (1.0, 3.0)):
        scores = fused([(one, [7, 8]), (other, [8, 7])])
        assert (scores[7] > scores[8]) == (one > other)
    assert fused([(1.0, [5]), (1.0, [5])]) == {5: 1.0}
    assert fused([(1.0, [5]), (0.0, [6])])[6] == 0


def unit(chance: random.Random, dimensions: int = 24) -> array[float]:
    return normalized(array("f", [chance.gauss() for _ in range(dimensions)]))


@pytest.fixture
def connection(tmp_path: Path) -> Any:
    VectorStoreDatabase(tmp_path).close()
    opened = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    opened.row_factory = sqlite3.Row
    yield opened
    opened.close()


@pytest.mark.parametrize("with_numpy", [True, False])
@pytest.mark.slow
def test_the_nearest_are_those_of_the_greatest_cosines(
    connection: Any, monkeypatch: pytest.MonkeyPatch, with_numpy: bool
) -> None:
    if with_numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(vectors, "_numpy", lambda: None)
    chance = random.Random(7)
    stored = {
        span_of(file)[0] + number: unit(chance) for file in (3, 4, 5) for number in range(400)
    }
    nothing = span_of(4)[0] + 400
    vectors.keep(connection, 2, [*stored.items(), (nothing, None)])
    elsewhere = span_of(3)[0] + 400
    queries = [unit(chance), unit(chance)]
    vectors.keep(connection, 1, [(elsewhere, queries[0])])
    found = vectors.nearest(connection, 2, queries, [3, 4], 10)

    def cosine(query: array[float], chunk: int) -> float:
        return math.sumprod(query, stored[chunk]) if hasattr(math, "sumprod") else sum(a * b for a, b in zip(query, stored[chunk], strict=True))  # fmt: skip

    for query, ids in zip(queries, found, strict=True):
        of_both = [chunk for chunk in stored if chunk < span_of(5)[0]]
        assert ids == sorted(of_both, key=lambda chunk: -cosine(query, chunk))[:10]


def test_a_space_is_known_again_by_its_vectors(connection: Any) -> None:
    chance = random.Random(1)
    probe, other = [unit(chance) for _ in range(3)], [unit(chance) for _ in range(3)]
    noisy = [normalized(array("f", [n + 1e-4 for n in vector])) for vector in probe]
    with transaction(connection):
        first = vectors.space_of(connection, "m", probe)
        assert vectors.space_of(connection, "renamed", noisy) == first
        second = vectors.space_of(connection, "m", other)
        assert second != first
        assert vectors.is_current(connection, second)
        assert not vectors.is_current(connection, first)
        assert vectors.space_of(connection, "m", [each[:8] for each in probe]) not in (
            first,
            second,
        )
        assert vectors.space_of(connection, "m", probe) == first
        assert vectors.is_current(connection, first), "who came last is it"


def test_a_file_of_an_earlier_version_is_brought_up(tmp_path: Path) -> None:
    """With what is in it."""
    from gateway_file_search import database

    first = sqlite3.connect(tmp_path / FILE)
    first.executescript(database._VERSIONS[0] + "; PRAGMA user_version = 1")
    first.execute(
        "INSERT INTO files (id, owner, bytes, created_at, filename, purpose) VALUES ('file-1', '', 1, 1, 'a', 'vision')"
    )
    first.commit()
    first.close()
    for _ in range(2):
        VectorStoreDatabase(tmp_path).close()
    opened = sqlite3.connect(tmp_path / FILE)
    assert opened.execute("SELECT id FROM files").fetchall() == [("file-1",)]
    assert opened.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
    assert opened.execute("SELECT space FROM store_files").fetchall() == []
    opened.close()
