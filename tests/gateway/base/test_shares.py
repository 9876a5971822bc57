"""What several owners use at once is shared between them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.shares import (
    FairSlots,
    FairThreads,
    ShareExceeded,
    Shares,
    current_owner,
    share_threads,
)
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal

pytestmark = pytest.mark.anyio


@contextmanager
def working_for(owner: str) -> Iterator[None]:
    with within(RequestContext("req_1", principal=Principal(name=owner))):
        yield


STEPS = st.lists(st.tuples(st.sampled_from(["come", "end"]), st.sampled_from("abc")), max_size=80)


@given(steps=STEPS, places=st.integers(1, 6), each=st.integers(1, 6))
def test_nobody_has_more_than_a_share_and_no_place_is_left_that_somebody_may_have(
    steps: list[tuple[str, str]], places: int, each: int
) -> None:
    turns = FairSlots[int](places, each=each)
    running: deque[str] = deque()
    waiting: Counter[str] = Counter()
    for number, (step, owner) in enumerate(steps):
        if step == "come":
            turns.add(owner, number)
            waiting[owner] += 1
        elif running:
            turns.leave(running.popleft())
        while (found := turns.next()) is not None:
            running.append(found[0])
            waiting[found[0]] -= 1
        held = Counter(running)
        assert len(running) <= places
        assert all(count <= each for count in held.values())
        if len(running) < places:
            assert all(held[owner] >= each for owner in +waiting)


@given(others=st.lists(st.integers(1, 50), min_size=1, max_size=5), places=st.integers(1, 8))
def test_who_comes_last_waits_for_one_turn_of_each_owner_at_most(
    others: list[int], places: int
) -> None:
    turns = FairSlots[int](places)
    for owner, many in enumerate(others):
        for each in range(many):
            turns.add(f"owner {owner}", each)
    running = deque[str]()
    while (found := turns.next()) is not None:
        running.append(found[0])
    turns.add("bob", 0)
    ended = 0
    while (found := turns.next()) is None or found[0] != "bob":
        if found is None:
            turns.leave(running.popleft())
            ended += 1
        else:
            running.append(found[0])
    assert ended <= len(others) + 1


@given(
    places=st.integers(1, 8),
    owners=st.integers(2, 5),
    ends=st.lists(st.integers(0, 100), min_size=60, max_size=60),
)
def test_owners_that_keep_asking_come_to_hold_equal_numbers_of_places(
    places: int, owners: int, ends: list[int]
) -> None:
    """Whoever came first and had places to itself, and whatever ends first."""
    turns = FairSlots[int](places)
    for owner in range(owners):
        for each in range(100):
            turns.add(str(owner), each)
        while turns.next() is not None:
            pass
    held = [turns.held_by(str(owner)) for owner in range(owners)]
    for end in ends:
        running = [str(owner) for owner in range(owners) for _ in range(held[owner])]
        turns.leave(running[end % len(running)])
        assert turns.next() is not None
        before, held = max(held), [turns.held_by(str(owner)) for owner in range(owners)]
        assert max(held) <= max(before, -(-places // owners)), "nobody gains beyond its share"
    while max(held) - min(held) > 1:
        turns.leave(str(held.index(max(held))))
        assert turns.next() is not None
        again = [turns.held_by(str(owner)) for owner in range(owners)]
        assert sorted(again) != sorted(held), "each place that ends makes it fairer"
        held = again


def test_only_the_owner_who_exceeds_a_share_is_refused() -> None:
    turns = FairSlots[int](4, each=2, max_waiting=3)
    for each in range(5):
        turns.add("alice", each)
    with pytest.raises(ShareExceeded):
        turns.add("alice", 5)
    turns.add("bob", 0)
    turns.remove("alice", 4)
    turns.add("alice", 6)


async def test_a_place_is_the_current_owners() -> None:
    shares = Shares(4, max_waiting=0)
    with working_for("alice"):
        assert current_owner() == "alice"
        for _ in range(3):
            await shares.take()
        with pytest.raises(ShareExceeded):
            await shares.take()
    with working_for("bob"):
        assert await shares.take() == "bob"


@pytest.mark.parametrize("woken", [False, True])
async def test_who_is_cancelled_while_waiting_leaves_the_place_to_others(woken: bool) -> None:
    shares = Shares(1)
    owner = await shares.take("alice")
    waiting = asyncio.create_task(shares.take("bob"))
    await asyncio.sleep(0)
    if woken:
        shares.leave(owner)
    waiting.cancel()
    await asyncio.wait([waiting])
    if not woken:
        shares.leave(owner)
    async with asyncio.timeout(60), shares.slot("carol"):
        pass


async def test_a_place_can_be_given_back_in_another_thread() -> None:
    shares = Shares(1)
    owner = await shares.take("alice")
    waiting = asyncio.create_task(shares.take("bob"))
    await asyncio.sleep(0)
    threading.Thread(target=shares.leave, args=(owner,)).start()
    assert await waiting == "bob"


async def test_threads_of_the_loop_are_shared() -> None:
    """Whoever fills them delays another owner's work by no turn."""
    share_threads()
    over = threading.Event()
    begun = Counter[str]()

    def work(owner: str) -> None:
        begun[owner] += 1
        over.wait()

    with working_for("alice"):
        tasks = [asyncio.create_task(asyncio.to_thread(work, "alice")) for _ in range(200)]
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            with working_for("bob"):
                assert await asyncio.to_thread(lambda: 1) == 1
            assert await asyncio.to_thread(lambda: 1) == 1, "the gateway's own work"
        assert begun["alice"] < 200
    finally:
        over.set()
    await asyncio.gather(*tasks)
    assert begun["alice"] == 200


def test_threads_take_turns_raise_what_was_raised_and_end_what_was_submitted() -> None:
    order: list[str] = []
    begun, over = threading.Event(), threading.Event()
    threads = FairThreads(1)

    def block() -> None:
        begun.set()
        over.wait()

    threads.submit(block)
    begun.wait()
    for owner in "aaab":
        with working_for(owner):
            futures = [threads.submit(order.append, owner)]
    cancelled = threads.submit(order.append, "cancelled")
    assert cancelled.cancel()
    failing = threads.submit(int, "x")
    over.set()
    threads.shutdown()
    assert order == ["a", "b", "a", "a"]
    assert futures[0].done()
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result()
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.submit(int)


def test_what_has_not_begun_can_be_cancelled_at_the_end() -> None:
    begun, over = threading.Event(), threading.Event()
    threads = FairThreads(1)

    def block() -> None:
        begun.set()
        over.wait()

    running, waiting = threads.submit(block), threads.submit(int)
    begun.wait()
    threads.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    over.set()
    running.result()


async def test_a_free_place_is_taken_without_waiting_and_several_are_given_back_together() -> None:
    shares = Shares(4)
    with working_for("alice"):
        assert [shares.take_free() for _ in range(4)] == ["alice"] * 3 + [None]
        waiting = asyncio.create_task(shares.take())
        await asyncio.sleep(0)
    with working_for("bob"):
        assert shares.take_free() == "bob"
    shares.leave_all(["alice", "bob"])
    async with asyncio.timeout(60):
        assert await waiting == "alice"
    with working_for("alice"):
        assert shares.take_free() is None, "the others have come first"
