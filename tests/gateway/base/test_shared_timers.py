"""Timers that requests share."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

import pytest

from gateway.base.shared_timers import SharedTimers

pytestmark = pytest.mark.anyio


async def test_a_timer_rings_once_and_never_before_its_time() -> None:
    timers, rung = SharedTimers(), asyncio.Event()
    times: list[float] = []
    began = time.monotonic()

    def ring() -> None:
        times.append(time.monotonic())
        rung.set()

    timers.call_later(0.05, ring)
    await asyncio.wait_for(rung.wait(), 60)
    assert len(times) == 1
    assert times[0] - began > 0.045  # the loop's clock has milliseconds


async def test_a_cancelled_timer_does_not_ring_and_the_others_do() -> None:
    timers, rung = SharedTimers(), asyncio.Event()
    heard: list[str] = []
    first = timers.call_later(0.02, lambda: heard.append("cancelled"))
    timers.call_later(0.04, rung.set)
    first.cancel()
    first.cancel()
    await asyncio.wait_for(rung.wait(), 60)
    assert heard == []


async def test_timers_of_one_moment_share_one_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), SharedTimers()
    made: list[float] = []
    call_at, now = loop.call_at, loop.time()

    def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        made.append(when)
        return call_at(when, *args, **options)

    monkeypatch.setattr(loop, "call_at", counted)
    monkeypatch.setattr(loop, "time", lambda: now)
    for seconds in (10.0, 100.0):
        for each in [timers.call_later(seconds, print) for _ in range(100)]:
            each.cancel()
        assert now + seconds <= made[-1] <= now + 1.02 * seconds
    assert len(made) == 2


async def test_a_timer_that_fails_does_not_keep_others_from_ringing() -> None:
    loop, timers = asyncio.get_running_loop(), SharedTimers()
    rung, failures = asyncio.Event(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise RuntimeError

    both = [timers.call_later(0.01, fail) for _ in range(3)]
    timers.call_later(0.05, rung.set)
    await asyncio.wait_for(rung.wait(), 60)
    loop.set_exception_handler(None)
    assert len(failures) == len(both)


async def test_what_rings_has_no_request_of_its_own() -> None:
    whose, timers, rung = ContextVar("whose", default=""), SharedTimers(), asyncio.Event()
    whose.set("the first")
    heard: list[str] = []

    def ring() -> None:
        heard.append(whose.get())
        rung.set()

    timers.call_later(0.01, ring)
    await asyncio.wait_for(rung.wait(), 60)
    assert heard == [""]
