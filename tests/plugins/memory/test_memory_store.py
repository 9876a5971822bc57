"""The bounds of the memory store. `tests/plugins/test_stores.py` has the contract."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from gateway.plugins.protocols import CompletionPage
from gateway.wire.response import Conversation
from gateway_memory import MemoryConfig, MemoryStore, open_memory
from gateway_testing.store_completion_contract import completion
from gateway_testing.store_records import message, record
from tests.clock import Clock

pytestmark = pytest.mark.anyio


async def test_its_configuration_reaches_it() -> None:
    async with open_memory(MemoryConfig(max_responses=2)) as store:
        for _ in range(5):
            await store.put(record())
        assert len(store) == 2


async def test_what_was_not_used_for_longest_goes_first() -> None:
    store = MemoryStore(max_responses=3)
    first, second, third, fourth = (record() for _ in range(4))
    for each in (first, second, third):
        await store.put(each)
    assert await store.get(first.id) is not None
    await store.put(fourth)
    assert await store.get(second.id) is None
    assert [await store.get(each.id) is not None for each in (first, third, fourth)] == [True] * 3


async def test_what_nobody_used_is_forgotten() -> None:
    clock = Clock()
    store = MemoryStore(ttl=60, clock=clock)
    kept, left = record(), record()
    await store.put(kept)
    await store.put(left)
    await store.put_conversation(Conversation(id="conv_1", created_at=1))
    clock.now += 59
    assert await store.get(kept.id) is not None
    clock.now += 2
    assert await store.get(left.id) is None
    assert await store.get_conversation("conv_1") is None
    assert await store.get(kept.id) is not None
    clock.now += 61
    assert await store.get(kept.id) is None
    assert (len(store), store.size) == (0, 0)


async def test_its_size_is_bounded() -> None:
    store = MemoryStore(max_bytes=100_000)
    for number in range(100):
        await store.put(record(output=[message("assistant", "x" * 5000)]))
        await store.put_conversation(Conversation(id=f"conv_{number}", created_at=1))
        await store.append_items(f"conv_{number}", [message("user", "y" * 3000)])
        assert store.size <= 100_000
    assert len(store) > 5


async def test_what_is_larger_than_the_store_is_not_kept() -> None:
    store = MemoryStore(max_bytes=10_000)
    large = record(output=[message("assistant", "x" * 20_000)])
    await store.put(large)
    assert await store.get(large.id) is None
    assert store.size == 0


async def test_events_count() -> None:
    store = MemoryStore(max_bytes=50_000)
    done = record()
    await store.put(done)
    await store.append_events(done.id, [b"x" * 30_000], last=True)
    assert store.size > 30_000
    other = record()
    await store.put(other)
    await store.append_events(other.id, [b"x" * 30_000], last=True)
    assert await store.get(done.id) is None
    assert 30_000 < store.size < 50_000


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_what_is_running_stays(status: str) -> None:
    clock = Clock()
    store = MemoryStore(max_responses=2, max_bytes=20_000, ttl=10, clock=clock)
    running = record(status=status)  # type: ignore[arg-type]
    await store.put(running)
    await store.append_events(running.id, [b"first"])
    for _ in range(20):
        clock.now += 20
        await store.put(record(output=[message("assistant", "x" * 15_000)]))
    assert await store.get(running.id) is not None
    assert await store.count_events(running.id) == 1


async def test_a_chain_takes_memory_in_proportion_to_its_length() -> None:
    """A thousand turns, each with the whole history before it, are a thousand items and not half a million."""
    store = MemoryStore()
    previous = None
    for _ in range(1000):
        each = record(output=[message("assistant", "x" * 100)], previous_response_id=previous)
        await store.put(each)
        previous = each.id
    per_turn = store.size / 1000
    assert per_turn < 2000
    history = await store.history(previous or "")
    assert history is not None
    assert len(history) == 2000


async def test_an_evicted_ancestor_lives_in_its_descendants_and_is_counted() -> None:
    store = MemoryStore(max_responses=1)
    root = record(output=[message("assistant", "x" * 10_000)])
    await store.put(root)
    child = record(previous_response_id=root.id)
    await store.put(child)
    assert await store.get(root.id) is None
    history = await store.history(child.id)
    assert history is not None
    assert len(history) == 3
    assert store.size > 10_000
    assert await store.delete(child.id)
    assert store.size == 0


async def test_a_child_whose_parent_was_gone_has_no_history() -> None:
    """Half a history would be a wrong answer without a sign."""
    store = MemoryStore()
    child = record(previous_response_id="resp_gone")
    await store.put(child)
    assert await store.get(child.id) is not None
    assert await store.history(child.id) is None


async def test_the_count_of_bytes_is_exact_whatever_happens() -> None:
    """Random puts, replacements, deletions and evictions; in the end everything goes, and nothing is counted."""
    chance = random.Random(7)
    store = MemoryStore(max_responses=20, max_bytes=60_000)
    ids: list[str] = []
    for _ in range(800):
        roll = chance.random()
        if roll < 0.6 or not ids:
            each = record(
                previous_response_id=chance.choice([None, *ids[-10:]]),
                output=[message("assistant", "x" * chance.randrange(4000))],
            )
            ids.append(each.id)
            await store.put(each)
        elif roll < 0.75:
            await store.put(record(response_id=chance.choice(ids), request=b"r" * 50))
        elif roll < 0.85:
            await store.append_events(chance.choice(ids), [b"e" * chance.randrange(500)])
        else:
            await store.delete(chance.choice(ids))
        assert store.size <= 60_000
        assert len(store) <= 20
    for each_id in ids:
        await store.delete(each_id)
    assert (len(store), store.size) == (0, 0)


async def test_a_very_long_chain_may_be_freed() -> None:
    """Without recursion, which would end the process."""
    store = MemoryStore(max_responses=1, max_bytes=1 << 40)
    previous = None
    for _ in range(20_000):
        each = record(input_=[], previous_response_id=previous)
        await store.put(each)
        previous = each.id
    assert await store.history(previous or "") == []
    assert await store.delete(previous or "")
    assert store.size == 0
    del store
    gc.collect()


async def test_who_reads_a_finished_log_may_read_it_to_its_end() -> None:
    store = MemoryStore(max_responses=1)
    done = record()
    await store.put(done)
    await store.append_events(done.id, [b"0", b"1"], last=True)
    reader = store.read_events(done.id)
    await store.put(record())
    assert await store.get(done.id) is None
    assert [event async for batch in reader for event in batch] == [b"0", b"1"]


async def test_a_late_owner_does_not_take_back_what_was_taken_over() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    running = record(status="in_progress")
    await store.put(running)
    await store.lease("slow", [running.id], seconds=5)
    clock.now += 6
    assert [each.id for each in await store.take_orphans("heir", seconds=30)] == [running.id]
    await store.lease("slow", [running.id], seconds=100)
    clock.now += 31
    assert [each.id for each in await store.take_orphans("other", seconds=5)] == [running.id]


async def test_readers_leave_nothing_behind() -> None:
    store = MemoryStore()
    running = record(status="in_progress")
    await store.put(running)
    for _ in range(100):
        reader = store.read_events(running.id)
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await reader.aclose()
    log = store._unfinished[running.id].log
    assert log._waiting == []


async def test_chat_completions_are_bounded_by_number_time_and_size() -> None:
    clock = Clock()
    store = MemoryStore(max_completions=2, max_bytes=20_000, ttl=100, clock=clock)
    first, second, third = (completion(text=str(number)) for number in range(3))
    for each in (first, second):
        await store.put_completion(each)
        clock.now += 1
    assert await store.get_completion(first.id) is not None
    clock.now += 1
    await store.put_completion(third)
    assert await store.get_completion(second.id) is None, "it was not used for longest"
    page = await store.list_completions()
    assert page is not None
    assert [each.id for each in page.completions] == [first.id, third.id]
    each_size = store.size // 2
    large = completion(text="x" * (20_000 - 3 * each_size // 2))
    await store.put_completion(large)
    assert await store.get_completion(large.id) is not None
    assert await store.get_completion(third.id) is None
    assert store.size <= 20_000
    assert await store.update_completion(large.id, {"a": "b"}) is not None
    clock.now += 100
    assert await store.get_completion(large.id) is None
    assert await store.list_completions() == CompletionPage(completions=[], has_more=False)
    assert store.size == 0


async def test_the_bytes_of_completions_are_counted_exactly() -> None:
    store = MemoryStore()
    kept = completion(owner="ada")
    await store.put_completion(kept)
    size = store.size
    await store.put_completion(kept)
    assert store.size == size
    await store.update_completion(kept.id, {"a": "b"}, owner="ada")
    assert store.size == size + len('"a":"b"')
    assert await store.delete_completion(kept.id, owner="ada")
    assert store.size == 0
