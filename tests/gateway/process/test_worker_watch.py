"""When a worker counts as one that no longer runs."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import Any

import pytest

from gateway.base.task_context import running_task
from gateway.config import Config, ServerConfig
from gateway.config.tables import TableError, decode_table
from gateway.observe.stall_watch import BeatWatch
from gateway.process.worker_watch import Heartbeat
from gateway.process.workers import _Started, _Supervisor
from tests.clock import Clock
from tests.waiting import wait_until_async


@pytest.mark.parametrize(
    ("seconds", "beats", "silent"),
    [
        (4.5, [1, 2, 3, 4, 5, 6], False),  # it runs
        (4.5, [1, 2, 2, 2, 2, 3], False),  # it was busy
        (4.5, [1, 1, 1, 1, 1, 1], True),  # it has stopped
        (4.5, [0, 0, 0, 0, 0, 0], False),  # it starts, however long that takes
        (4.5, [1, 2, 0, 0, 0, 0], False),  # it ends
        (0.0, [1, 1, 1, 1, 1, 1], False),  # nobody is to look
    ],
)
def test_only_a_worker_that_ran_and_runs_no_longer_is_silent(
    seconds: float, beats: list[int], silent: bool
) -> None:
    clock, coming = Clock(), iter(beats)
    watch = BeatWatch(lambda: next(coming), seconds, monotonic=clock)
    told = []
    for _ in beats:
        told.append(watch.silent())
        clock.now += 1.0
    assert told == [False] * (len(beats) - 1) + [silent]


def test_a_supervisor_that_stood_still_gives_the_worker_its_time_again() -> None:
    clock = Clock()
    watch = BeatWatch(lambda: 1, 3.0, monotonic=clock)
    watch.silent()
    clock.now += 1000.0
    watch.begin_anew()
    assert not watch.silent()
    clock.now += 3.5
    assert watch.silent()


def test_a_worker_that_opens_an_engine_is_not_looked_at() -> None:
    """llama.cpp keeps the interpreter while it loads a file, from a slow disk for more than a minute."""
    heartbeat = Heartbeat(multiprocessing.get_context("spawn"))

    async def main() -> list[int]:
        async with running_task(heartbeat.beat()):
            await asyncio.sleep(0)
            told = [heartbeat.beats]
            with heartbeat.opening():
                told.append(heartbeat.beats)
                with heartbeat.opening():
                    pass
                assert not heartbeat.beats, "the first is still being opened"
            await wait_until_async(lambda: heartbeat.beats > told[0], "it is looked at again")
        return told

    assert asyncio.run(main()) == [1, 0]


class Stuck:
    """A worker that is stopped, and waits for a disk."""

    pid = 7

    def __init__(self) -> None:
        self.killed = 0

    def kill(self) -> None:
        self.killed += 1

    def join(self, timeout: float | None = None) -> None:
        assert timeout is not None, "this would wait for ever"


def test_a_worker_that_does_not_end_when_it_is_killed_keeps_the_supervisor_from_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config(models={}, server=ServerConfig(workers=2, worker_timeout=10))
    made: Any = [config, None, None, None, None, "", None]
    supervisor = _Supervisor(*made)
    clock = Clock()
    stuck: Any = Stuck()
    watch = BeatWatch(lambda: 1, 10.0, monotonic=clock)
    watch.silent()
    clock.now += 11
    supervisor._workers[stuck] = _Started(0.0, watch)
    for _ in range(3):
        supervisor._kill_silent()
    assert stuck.killed == 1
    assert len(caplog.records) == 1


@pytest.mark.parametrize("seconds", [0.5, 9.9])
def test_a_time_in_which_a_worker_that_runs_may_count_nothing_is_a_mistake(seconds: float) -> None:
    """A worker counts once a second, and a supervisor that stood still for five seconds does not know it."""
    for key in ("worker_timeout", "engine_process_timeout"):
        with pytest.raises(TableError, match=f"{key} is at least 10 seconds"):
            decode_table({key: seconds}, ServerConfig, ("server",))


def test_a_worker_that_ends_is_no_longer_looked_at() -> None:
    heartbeat = Heartbeat(multiprocessing.get_context("spawn"))

    async def main() -> None:
        async with running_task(heartbeat.beat()):
            await asyncio.sleep(0)
            assert heartbeat.beats == 1

    assert heartbeat.beats == 0
    asyncio.run(main())
    assert heartbeat.beats == 0
