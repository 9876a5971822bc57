from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.access.owned import Owned
from gateway.observe.in_progress import RequestsInProgress

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def in_one_task(events: list[str], *, fails: bool = False) -> AsyncIterator[str]:
    async with asyncio.TaskGroup():  # has to be left in the task that entered it
        if fails:
            raise ValueError("broken")
        events.append("open")
        yield "value"
        events.append("close")


async def test_a_context_manager_can_be_closed_by_another_task() -> None:
    events: list[str] = []
    owned = Owned(in_one_task(events))
    assert await asyncio.create_task(owned.open()) == owned.value == "value"
    await asyncio.create_task(owned.close())
    await owned.close()
    assert events == ["open", "close"]


async def test_what_cannot_be_opened_raises_why() -> None:
    owned = Owned(in_one_task([], fails=True))
    with pytest.raises(ExceptionGroup) as failure:
        await owned.open()
    assert isinstance(failure.value.exceptions[0], ValueError)


async def test_opening_can_be_cancelled() -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        reached.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            left.set()

    opening = asyncio.create_task(Owned(slow()).open())
    await reached.wait()
    opening.cancel()
    await asyncio.wait((opening,))
    assert opening.cancelled()
    assert left.is_set()


async def test_requests_that_began_later_are_not_waited_for() -> None:
    requests = RequestsInProgress()
    await requests.ended()
    first = requests.begin()
    waiting = asyncio.create_task(requests.ended())
    await asyncio.sleep(0)
    second = requests.begin()
    also_waiting = asyncio.create_task(requests.ended())
    await asyncio.sleep(0)
    requests.end(second)
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not also_waiting.done()
    third = requests.begin()
    requests.end(first)
    await asyncio.gather(waiting, also_waiting)
    requests.end(third)
