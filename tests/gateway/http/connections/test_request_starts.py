"""Concurrent requests are begun a few at a time, in their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.http.connections.request_starts import PER_ITERATION, RequestStarts

pytestmark = pytest.mark.anyio
MOST = 3 * PER_ITERATION + 1


class Requests:
    """Requests that come to `starts`; each has a task, as on a server."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.starts = RequestStarts(self._app)
        self.tasks: list[asyncio.Task[None]] = []

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(scope)

    def come(self, *numbers: int) -> None:
        async def run(number: int) -> None:
            await self.starts(number, None, None)

        self.tasks += [asyncio.create_task(run(number)) for number in numbers]


async def test_a_few_are_begun_in_each_turn_of_the_event_loop() -> None:
    requests = Requests()
    requests.come(*range(MOST))
    before = 0
    while len(requests.begun) < MOST:
        await asyncio.sleep(0)
        assert len(requests.begun) - before <= PER_ITERATION
        before = len(requests.begun)
    assert requests.begun == list(range(MOST))


async def test_later_requests_are_begun_later() -> None:
    requests = Requests()
    requests.come(*range(PER_ITERATION + 2))
    await asyncio.sleep(0)
    requests.come(*range(PER_ITERATION + 2, MOST))
    await asyncio.gather(*requests.tasks)
    assert requests.begun == list(range(MOST))


async def test_a_single_request_is_begun_immediately() -> None:
    requests = Requests()
    for number in range(3):
        requests.come(number)
        await asyncio.sleep(0)
        assert requests.begun == list(range(number + 1))


async def test_a_cancelled_request_takes_no_place() -> None:
    requests = Requests()
    requests.come(*range(MOST))
    await asyncio.sleep(0)
    requests.tasks[PER_ITERATION].cancel()
    await asyncio.wait(requests.tasks)
    assert requests.begun == [number for number in range(MOST) if number != PER_ITERATION]


async def test_all_waiting_requests_are_begun_before_the_server_stops() -> None:
    requests = Requests()
    requests.come(*range(MOST))
    await asyncio.sleep(0)
    requests.starts.begin_all()
    await asyncio.sleep(0)
    assert requests.begun == list(range(MOST))
    requests.come(MOST)
    await asyncio.gather(*requests.tasks)
    assert requests.begun == list(range(MOST + 1))
