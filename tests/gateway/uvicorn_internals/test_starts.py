"""Requests that come at once are begun a few at a time, in their order."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from functools import partial

import pytest

from gateway.uvicorn_internals.starts import AT_ONCE, RequestStarts

pytestmark = pytest.mark.anyio


async def test_a_few_are_begun_in_each_turn_of_the_event_loop() -> None:
    starts, begun = RequestStarts(), list[int]()
    most = 3 * AT_ONCE + 1
    for number in range(most):
        starts.begin(partial(begun.append, number))
    turns = []
    while len(begun) < most:
        turns.append(len(begun))
        await asyncio.sleep(0)
    assert turns == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE]
    assert begun == list(range(most))


async def test_who_comes_later_is_begun_later() -> None:
    starts, begun = RequestStarts(), list[int]()
    for number in range(AT_ONCE + 2):
        starts.begin(partial(begun.append, number))
    await asyncio.sleep(0)
    for number in range(AT_ONCE + 2, 3 * AT_ONCE):
        starts.begin(partial(begun.append, number))
    assert len(begun) == 2 * AT_ONCE
    await asyncio.sleep(0)
    assert begun == list(range(3 * AT_ONCE))


async def test_a_request_alone_is_begun_at_once_each_time() -> None:
    starts, begun = RequestStarts(), list[int]()
    for number in range(3):
        starts.begin(partial(begun.append, number))
        assert begun == list(range(number + 1))
        await asyncio.sleep(0)


async def test_who_waits_is_begun_in_its_own_context() -> None:
    whose: ContextVar[int] = ContextVar("whose")
    starts, begun = RequestStarts(), list[tuple[int, int]]()

    def come(number: int) -> None:
        whose.set(number)
        starts.begin(lambda: begun.append((number, whose.get())))

    for number in range(2 * AT_ONCE):
        copy_context().run(come, number)
    await asyncio.sleep(0)
    assert begun == [(number, number) for number in range(2 * AT_ONCE)]


async def test_all_that_wait_are_begun_before_the_server_stops() -> None:
    starts, begun = RequestStarts(), list[int]()
    most = 3 * AT_ONCE + 1
    for number in range(most):
        starts.begin(partial(begun.append, number))
    starts.begin_all()
    assert begun == list(range(most))
    starts.begin(partial(begun.append, most))
    await asyncio.sleep(0)
    assert begun == list(range(most + 1))
