"""Token ids that are kept of earlier prompts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.token_cache import TokenCache

KEYS = st.text("ab", max_size=3)


@given(
    steps=st.lists(st.tuples(KEYS, st.lists(st.integers(0, 2**32 - 1), max_size=300))),
    most=st.integers(0, 8000),
)
def test_what_is_kept_is_what_was_given_and_has_a_bound(
    steps: list[tuple[str, list[int]]], most: int
) -> None:
    cache, given_ids = TokenCache(most), {}
    for key, ids in steps:
        if cache.get(key) is None:
            given_ids[key] = ids
            cache.keep(key, [key], ids)
        known = {**cache._older, **cache._newer}
        assert sum(len(ids) * 4 for ids, _ in known.values()) <= most
        assert all(list(kept) == given_ids[key] for key, (kept, _) in known.items())


def test_what_is_asked_for_stays() -> None:
    cache = TokenCache(20_000)
    ids = [1] * 100
    cache.keep("used", ["used"], ids)
    for number in range(1000):
        other: Any = str(number)
        cache.keep(other, [other], ids)
        assert list(cache.get("used") or ()) == ids
    assert cache.get("0") is None


def test_several_are_asked_for_at_once() -> None:
    cache = TokenCache(20_000)
    for number in range(30):
        key: Any = str(number)
        cache.keep(key, [key], [number] * 100)
    known = [str(number) for number in range(30) if cache.get(str(number)) is not None]
    assert 1 < len(known) < 30
    assert cache._older, "some are of the older generation"
    assert "0" not in known
    found = cache.get_all(["0", *known, "x"])
    assert [each and each[0] for each in found] == [None, *map(int, known), None]
