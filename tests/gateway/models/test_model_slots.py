from __future__ import annotations

import asyncio

import pytest

from gateway.base.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    ModelNotFound,
    RateLimited,
)
from gateway.models.model_slots import MAX_BACK_OFF
from tests.gateway.models.house import house
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


async def test_two_requests_load_a_model_once() -> None:
    async with house() as it:
        slot = it.add("m", load="on_demand")
        it.open.clear()
        waiting = [asyncio.create_task(it.slots.acquire(slot)) for _ in range(5)]
        await wait_until_async(lambda: slot.waiting == 5)
        assert slot.state == "loading"
        it.open.set()
        await asyncio.gather(*waiting)
        assert it.events == ["open m"]
        assert (slot.state, slot.waiting) == ("loaded", 0)


async def test_at_the_end_engines_are_closed_in_order_and_not_cancelled() -> None:
    async with house() as it:
        for name in ("first", "used", "removed", "last"):
            await it.slots.acquire(it.add(name))
        for name in ("first", "last"):
            it.slots.slots[name].release()
        it.slots.retire("removed")
    assert it.events[4:] == ["close last", "close removed", "close used", "close first"]
    assert it.left_by == [None] * 4


async def test_a_waiter_that_leaves_does_not_stop_the_load_of_the_others() -> None:
    async with house() as it:
        slot = it.add("m")
        it.open.clear()
        leaving, staying = (asyncio.create_task(it.slots.acquire(slot)) for _ in range(2))
        await wait_until_async(lambda: slot.waiting == 2)
        leaving.cancel()
        await asyncio.wait((leaving,))
        assert slot.waiting == 1
        it.open.set()
        await staying
        slot.release()
        assert slot.is_idle


async def test_requests_beyond_the_queue_are_refused_while_a_model_loads() -> None:
    async with house() as it:
        slot = it.add("m", max_running=1, max_waiting=1)
        it.open.clear()
        waiting = [asyncio.create_task(it.slots.acquire(slot)) for _ in range(2)]
        await wait_until_async(lambda: slot.waiting == 2)
        with pytest.raises(RateLimited, match="not loaded yet"):
            await it.slots.acquire(slot)
        it.open.set()
        await asyncio.gather(*waiting)


async def test_waiting_has_a_limit() -> None:
    async with house(wait_seconds=0.01) as it:
        slot = it.add("m")
        it.open.clear()
        with pytest.raises(DeadlineExceeded, match="was not loaded"):
            await it.slots.acquire(slot)
        assert slot.waiting == 0


async def test_a_model_is_unloaded_when_its_requests_have_ended_and_new_ones_load_it_again() -> (
    None
):
    async with house() as it:
        slot = it.add("m")
        await it.slots.acquire(slot)
        reservation = slot.admission.reserve()
        slot.release()
        await it.slots.unload(slot)
        assert slot.state == "unloading"
        late = asyncio.create_task(it.slots.acquire(slot))
        async with reservation:
            await wait_until_async(lambda: slot.waiting == 1)
            assert it.events == ["open m"]
        await late
        assert it.events == ["open m", "close m", "open m"]
        assert slot.state == "loaded"


async def test_an_unloaded_model_admits_nothing() -> None:
    async with house() as it:
        slot = it.add("m")
        await it.slots.load(slot)
        await it.slots.unload(slot)
        assert (slot.state, it.events, dict(it.slots.models)) == (
            "unloaded",
            ["open m", "close m"],
            {},
        )
        with pytest.raises(EngineUnavailable, match="just been unloaded"):
            slot.admission.reserve()


async def test_a_failed_load_is_retried_but_not_at_once() -> None:
    async with house() as it:
        slot = it.add("m")
        it.broken.add("m")
        with pytest.raises(EngineUnavailable, match="could not be opened") as refused:
            await it.slots.acquire(slot)
        assert refused.value.headers["retry-after"] == "1"
        slot.retry_at += 600  # the second that it waits may pass on a machine that stalls
        with pytest.raises(EngineUnavailable):
            await it.slots.acquire(slot)
        assert it.events == ["open m"], "it was tried again before its time"
        slot.retry_at = 0.0
        with pytest.raises(EngineUnavailable):
            await it.slots.acquire(slot)
        assert slot.failures == 2
        for _ in range(10):
            slot.retry_at = 0.0
            with pytest.raises(EngineUnavailable) as refused:
                await it.slots.acquire(slot)
        assert int(refused.value.headers["retry-after"]) <= MAX_BACK_OFF
        it.broken.clear()
        slot.retry_at = 0.0
        await it.slots.acquire(slot)
        assert (slot.state, slot.failures, slot.failure) == ("loaded", 0, None)


async def test_all_that_wait_for_a_load_are_told_that_it_failed() -> None:
    async with house() as it:
        slot = it.add("m")
        it.broken.add("m")
        it.open.clear()
        waiting = [asyncio.create_task(it.slots.acquire(slot)) for _ in range(3)]
        await wait_until_async(lambda: slot.waiting == 3)
        it.open.set()
        for failure in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failure, EngineUnavailable)
        assert it.events == ["open m"]


async def test_the_least_recently_used_idle_model_makes_room() -> None:
    async with house(max_loaded=2) as it:
        one, two, three = (it.add(name) for name in ("one", "two", "three"))
        for slot in (one, two):
            await it.slots.acquire(slot)
            slot.release()
        await it.slots.acquire(one)
        one.release()
        await it.slots.acquire(three)
        assert [slot.state for slot in (one, two, three)] == ["loaded", "unloaded", "loaded"]


async def test_a_model_in_use_goes_when_its_requests_have_ended() -> None:
    async with house(max_loaded=1) as it:
        one, two = it.add("one"), it.add("two")
        await it.slots.acquire(one)
        waiting = asyncio.create_task(it.slots.acquire(two))
        await wait_until_async(lambda: one.state == "unloading")
        assert two.state == "loading"
        assert it.events == ["open one"]
        one.release()
        await waiting
        assert it.events == ["open one", "close one", "open two"]


async def test_a_request_that_uses_a_model_does_not_wait_until_that_is_unloaded() -> None:
    async with house(max_loaded=1) as it:
        one, two = it.add("one"), it.add("two")
        await it.slots.acquire(one)
        with pytest.raises(EngineUnavailable, match="max_loaded"):
            await it.slots.acquire(two, waits_for_room=False)
        one.release()
        await it.slots.acquire(two, waits_for_room=False)
        assert (one.state, two.state) == ("unloaded", "loaded")


async def test_an_idle_model_is_unloaded_and_one_in_use_is_not() -> None:
    async with house() as it:
        slot = it.add("m", idle_unload=0.001)
        await it.slots.acquire(slot)
        await asyncio.sleep(0.02)
        assert slot.state == "loaded"
        slot.release()
        await wait_until_async(lambda: slot.state == "unloaded")
        assert it.events == ["open m", "close m"]


async def test_a_retired_model_ends_its_requests_first() -> None:
    async with house() as it:
        slot = it.add("m", aliases=["also"])
        await it.slots.acquire(slot)
        it.slots.retire("m")
        assert (it.slots.find("m"), it.slots.find("also"), dict(it.slots.models)) == (
            None,
            None,
            {},
        )
        assert it.events == ["open m"]
        slot.release()
        await wait_until_async(lambda: it.events == ["open m", "close m"])


async def test_a_model_that_is_retired_while_it_loads_is_closed() -> None:
    async with house() as it:
        slot = it.add("m")
        it.open.clear()
        waiting = asyncio.create_task(it.slots.acquire(slot))
        await wait_until_async(lambda: slot.state == "loading" and bool(it.events))
        it.slots.retire("m")
        with pytest.raises(ModelNotFound, match="not served any more"):
            await waiting
        assert slot.state == "unloaded"


async def test_closing_closes_the_last_opened_first() -> None:
    async with house() as it:
        for name in ("one", "two"):
            await it.slots.load(it.add(name))
    assert it.events == ["open one", "open two", "close two", "close one"]


async def test_the_states_are_in_the_metrics() -> None:
    async with house() as it:
        slot = it.add("m")
        text = lambda: it.slots._metrics.exposition()[0].decode()  # noqa: E731
        assert 'gateway_model_state{model="m",state="unloaded"} 1.0' in text()
        await it.slots.load(slot)
        assert 'gateway_model_state{model="m",state="loaded"} 1.0' in text()
        assert 'gateway_model_state{model="m",state="unloaded"} 0.0' in text()
        it.slots.retire("m")
        assert 'gateway_model_state{model="m",state="loaded"} 0.0' in text()
