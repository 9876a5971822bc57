from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.request_stats import RequestStats
from gateway.routes.answers import WhileConnected
from gateway.uvicorn_internals.disconnect import on_disconnect
from tests.gateway.uvicorn_internals.test_fast_path import HEAD, Connection, body, cycle_on

pytestmark = pytest.mark.anyio


def read_cycle() -> Any:
    """A request whose body has been read."""
    cycle = cycle_on(Connection())
    cycle.more_body = False
    return cycle


def receive_of(cycle: Any, wrapped: bool) -> Any:
    """What the request receives by; `wrapped` as by a middleware, which hides that it is uvicorn's."""

    async def receive() -> Any:
        return await cycle.receive()

    return receive if wrapped else cycle.receive


def lose(cycle: Any) -> None:
    """The connection is lost, as uvicorn tells it: twice, for the request and for the latest of the pipeline."""
    cycle.disconnected = True
    cycle.message_event.set()
    cycle.message_event.set()


async def test_a_client_that_leaves_is_told_once_and_only_until_the_end() -> None:
    cycle, told = read_cycle(), []
    end = on_disconnect(cycle.receive, lambda: told.append("left"))
    assert end is not None
    lose(cycle)
    assert told == ["left"]
    end()
    assert (await cycle.receive())["type"] == "http.disconnect"
    other = read_cycle()
    end = on_disconnect(other.receive, lambda: told.append("other"))
    assert end is not None
    end()
    lose(other)
    assert told == ["left"]


async def test_an_answer_that_is_complete_is_no_client_that_has_left() -> None:
    cycle, told = read_cycle(), []
    end = on_disconnect(cycle.receive, lambda: told.append("left"))
    assert end is not None
    await cycle.send(HEAD)
    await cycle.send(body(b"", more=False))
    assert told == []
    end()
    assert (await cycle.receive())["type"] == "http.disconnect"


async def test_nothing_is_watched_before_the_body_is_read_nor_after_the_client_has_left() -> None:
    cycle = cycle_on(Connection())
    assert on_disconnect(cycle.receive, lambda: None) is None
    cycle.more_body = False
    lose(cycle)
    assert on_disconnect(cycle.receive, lambda: None) is None


@pytest.mark.parametrize("wrapped", [True, False])
async def test_work_ends_when_the_client_leaves_and_the_request_goes_on(wrapped: bool) -> None:
    cycle, began, ended = read_cycle(), asyncio.Event(), []

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def answer() -> RequestStats:
        stats = RequestStats("mine")
        stats.enter()
        with WhileConnected(receive_of(cycle, wrapped)):
            await work()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)  # is not cancelled
        return stats

    answering = asyncio.create_task(answer())
    await began.wait()
    lose(cycle)
    assert (await answering).client_left
    assert ended == [True]


@pytest.mark.parametrize("wrapped", [True, False])
async def test_a_cancelled_request_stays_cancelled(wrapped: bool) -> None:
    cycle, began = read_cycle(), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async def answer() -> None:
        with WhileConnected(receive_of(cycle, wrapped)):
            await work()

    answering = asyncio.create_task(answer())
    await began.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


@pytest.mark.parametrize("wrapped", [True, False])
async def test_what_breaks_the_work_is_raised(wrapped: bool) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with (
        pytest.raises(ValueError, match="broken"),
        WhileConnected(receive_of(read_cycle(), wrapped)),
    ):
        await work()
