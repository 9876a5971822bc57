from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.access.admission import Admission
from gateway.base.errors import EngineUnavailable, RateLimited
from gateway.engines.process.client import SharedQueue

pytestmark = pytest.mark.anyio


async def test_a_higher_limit_lets_waiting_requests_run() -> None:
    admission = Admission("m", max_running=1, max_waiting=5)
    one, two = admission.reserve(), admission.reserve()
    async with one:
        entering = asyncio.create_task(two.__aenter__())
        await asyncio.sleep(0)
        assert not entering.done()
        admission.resize(2, 5)
        await entering
        assert admission.running == 2
        await two.__aexit__(None, None, None)


async def test_a_lower_limit_holds_once_enough_requests_have_ended() -> None:
    admission = Admission("m", max_running=3, max_waiting=1)
    running = [admission.reserve() for _ in range(3)]
    for each in running:
        await each.__aenter__()
    admission.resize(1, 1)
    with pytest.raises(RateLimited):
        admission.reserve()
    for each in running[:2]:
        await each.__aexit__()
    waiting = admission.reserve()
    entering = asyncio.create_task(waiting.__aenter__())
    await asyncio.sleep(0)
    assert not entering.done(), "one runs still, and one may"
    await running[2].__aexit__()
    await entering
    await waiting.__aexit__()
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_lowered_limit_can_be_raised_again() -> None:
    admission = Admission("m", max_running=4, max_waiting=0)
    for limit in (1, 3, 2, 4):
        admission.resize(limit, 0)
    held = [admission.reserve() for _ in range(4)]
    async with asyncio.timeout(60):
        for each in held:
            await each.__aenter__()
    for each in held:
        await each.__aexit__()


async def test_a_closed_queue_admits_nobody_and_idleness_is_told() -> None:
    told: list[int] = []
    admission = Admission("m", max_running=1, max_waiting=1, on_idle=lambda: told.append(1))
    one, two = admission.reserve(), admission.reserve()
    two.cancel()
    assert not told
    async with one:
        assert not told
    assert told == [1]
    admission.is_open = False
    with pytest.raises(EngineUnavailable):
        admission.reserve()


class Shared:
    """A queue of all server processes with one place, which is that of every request."""

    def __init__(self) -> None:
        self.taken = 0

    async def reserve(self, *_: object, **__: object) -> Shared:
        self.taken += 1
        return self

    async def begin(self) -> None: ...

    def used(self, prompt: int, output: int) -> None: ...

    def end(self) -> None:
        self.taken -= 1


async def test_who_leaves_this_queue_leaves_the_shared_one_too() -> None:
    admission = Admission("m", max_running=1, max_waiting=1)
    shared = Shared()
    async with admission.reserve():
        admission.shared = cast("SharedQueue", shared)
        entering = asyncio.create_task(admission.reserve().__aenter__())
        while not admission.waiting or not shared.taken:  # noqa: ASYNC110  # nobody is told
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert (admission.waiting, shared.taken) == (0, 0)


async def test_what_the_shared_queue_has_let_go_first_is_not_held_back_here() -> None:
    """Work that no client waits for, whose place there would be idle meanwhile."""
    admission = Admission("m", max_running=2, max_waiting=5)
    shared = Shared()
    admission.shared = cast("SharedQueue", shared)
    line = admission.reserve(priority=100)
    await line.claim()
    first, second = admission.reserve(), admission.reserve()
    async with first:
        entering = asyncio.create_task(line.__aenter__())
        for _ in range(5):
            await asyncio.sleep(0)
        assert entering.done()
        waiting = asyncio.create_task(second.__aenter__())
        late = admission.reserve(priority=100)
        entering_late = asyncio.create_task(late.__aenter__())
        for _ in range(5):
            await asyncio.sleep(0)
        assert admission.running == 2
        line.leave()
        line.used(1, 1)
        await waiting
        assert not entering_late.done(), "clients go first also among those that were let go"
    await entering_late
    assert admission.running == 2
    second.leave()
    late.leave()
    assert (admission.running, admission.waiting, shared.taken) == (0, 0, 0)
