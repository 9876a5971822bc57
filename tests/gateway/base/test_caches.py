"""Caches of what was used last."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.caches import ComputedCache, LruCache
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Media, Principal


def media(size: int) -> Media:
    return Media(kind="image", data=bytes(size), media_type="image/png", sha256="00")


def size(each: Media) -> int:
    return len(each.data)


class Maker:
    """Makes media when it is told to, and counts."""

    def __init__(self, size: int = 10) -> None:
        self.made = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self._size = size

    async def __call__(self) -> Media:
        self.made += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return media(self._size)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=40))
def test_the_newest_values_are_kept_within_both_bounds(puts: list[tuple[int, int]]) -> None:
    cache, kept = LruCache[int, int](3, max_size=10), dict[int, int]()
    for key, size in puts:
        cache.put(key, size, size)
        kept = {**{each: held for each, held in kept.items() if each != key}, key: size}
        while len(kept) > 1 and (len(kept) > 3 or sum(kept.values()) > 10):
            del kept[next(iter(kept))]
        assert {each for each in range(6) if each in cache} == set(kept)
    for key in kept:
        assert cache.get(key) == kept[key]


@given(puts=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20))), most=st.integers(1, 6))
def test_nobodys_values_go_for_those_of_who_has_more(
    puts: list[tuple[str, int]], most: int
) -> None:
    cache, kept = LruCache[tuple[str, int], int](most), set[tuple[str, int]]()
    for owner, number in puts:
        with within(RequestContext("req_1", principal=Principal(name=owner))):
            cache.put((owner, number), number)
        before = {*kept, (owner, number)}
        kept = {key for key in before if key in cache}
        assert len(kept) == min(len(before), most)
        assert (owner, number) in kept
        has, had = Counter(key[0] for key in kept), Counter(key[0] for key in before)
        assert all(has[owner] <= had[gone[0]] for gone in before - kept)


def test_who_puts_much_into_a_cache_pushes_out_nothing_of_others() -> None:
    cache = LruCache[tuple[str, int], int](8, max_size=800)
    for owner, many in (("bob", 2), ("carol", 3), ("alice", 1000)):
        with within(RequestContext("req_1", principal=Principal(name=owner))):
            for number in range(many):
                cache.put((owner, number), number, 100)
    for owner, number in (("bob", 0), ("bob", 1), ("carol", 0), ("carol", 2), ("alice", 999)):
        assert cache.get((owner, number)) == number


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 4), st.booleans()),
        max_size=60,
    ),
    most=st.integers(1, 6),
    max_size=st.integers(1, 12),
)
def test_the_oldest_of_who_has_most_goes(
    steps: list[tuple[str, int, int, bool]], most: int, max_size: int
) -> None:
    cache = LruCache[int, int](most, max_size=max_size)
    kept: dict[int, tuple[str, int]] = {}  # the least recently used first
    for owner, key, size, gets in steps:
        if gets:
            assert (cache.get(key) is not None) == (key in kept)
            if key in kept:
                kept[key] = kept.pop(key)
            continue
        with within(RequestContext("req_1", principal=Principal(name=owner))):
            cache.put(key, 1, size)
        kept.pop(key, None)
        kept[key] = owner, size
        while len(kept) > 1 and (len(kept) > most or sum(s for _, s in kept.values()) > max_size):
            has, sizes = Counter[str](), Counter[str]()
            for holder, each in kept.values():
                has[holder] += 1
                sizes[holder] += each
            counted = has if len(kept) > most else sizes
            others = [each for each in kept if each != key]
            # `max` takes the first of several, which is the least recently used.
            oldest = {kept[each][0]: each for each in reversed(list(kept))}
            gone = max(
                (each for each in others if oldest[kept[each][0]] == each),
                key=lambda each: counted[kept[each][0]],
            )
            del kept[gone]
        assert {each for each in range(21) if each in cache} == set(kept)


class CountingKey:
    """A key that counts comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingKey.compared += 1
        return self is other

    __hash__ = object.__hash__


def test_a_full_cache_of_many_owners_looks_at_few_of_them() -> None:
    cache = LruCache[CountingKey, int](500)
    CountingKey.compared = 0
    for number in range(2000):
        with within(RequestContext("req_1", principal=Principal(name=f"owner {number}"))):
            cache.put(CountingKey(), number)
    assert CountingKey.compared < 10 * 2000


def test_concurrent_calls_make_media_once() -> None:
    async def body() -> None:
        cache, maker = ComputedCache[str, Media](100, size), Maker()
        calls = [asyncio.ensure_future(cache.get("a", maker)) for _ in range(5)]
        await settle()
        maker.go.set()
        first, *others = await asyncio.gather(*calls)
        assert all(other is first for other in others)
        assert await cache.get("a", maker) is first
        assert maker.made == 1

    asyncio.run(body())


def test_the_least_recently_used_goes_first() -> None:
    async def body() -> None:
        cache, maker = ComputedCache[str, Media](30, size), Maker(10)
        maker.go.set()
        for key in ("a", "b", "c", "a", "d"):
            await cache.get(key, maker)
        assert maker.made == 4
        await cache.get("a", maker)
        assert maker.made == 4
        await cache.get("b", maker)
        assert maker.made == 5

    asyncio.run(body())


@pytest.mark.parametrize("limit", [0, 9])
def test_what_is_larger_than_the_cache_is_not_kept(limit: int) -> None:
    async def body() -> None:
        cache, maker = ComputedCache[str, Media](limit, size), Maker(10)
        maker.go.set()
        await cache.get("a", maker)
        await cache.get("a", maker)
        assert maker.made == 2

    asyncio.run(body())


def test_a_cancelled_call_leaves_the_others_their_result() -> None:
    async def body() -> None:
        cache, maker = ComputedCache[str, Media](100, size), Maker()
        calls = [asyncio.ensure_future(cache.get("a", maker)) for _ in range(3)]
        await settle()
        calls[0].cancel()
        await settle()
        assert not maker.cancelled
        maker.go.set()
        assert (await calls[1]) is (await calls[2])
        assert maker.made == 1

    asyncio.run(body())


def test_the_last_cancelled_call_ends_the_work_and_the_next_starts_it_anew() -> None:
    async def body() -> None:
        cache, maker = ComputedCache[str, Media](100, size), Maker()
        calls = [asyncio.ensure_future(cache.get("a", maker)) for _ in range(2)]
        await settle()
        for call in calls:
            call.cancel()
        later = asyncio.ensure_future(cache.get("a", maker))
        await settle()
        maker.go.set()
        assert await later == media(10)
        assert maker.cancelled in (0, 1)  # the later call may have come in time
        again = Maker()
        abandoned = asyncio.ensure_future(cache.get("b", again))
        await settle()
        abandoned.cancel()
        await settle()
        assert again.cancelled == 1
        again.go.set()
        assert await cache.get("b", again) == media(10)

    asyncio.run(body())


def test_a_failure_reaches_all_and_is_not_kept() -> None:
    async def body() -> None:
        cache = ComputedCache[str, Media](100, size)

        async def fail() -> Media:
            await asyncio.sleep(0)
            raise ValueError("broken")

        calls = [cache.get("a", fail) for _ in range(3)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(result) for result in results] == ["broken"] * 3
        maker = Maker()
        maker.go.set()
        assert await cache.get("a", maker) == media(10)

    asyncio.run(body())
