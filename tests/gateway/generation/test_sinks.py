"""Held sinks: whoever releases them and whenever, everything is sent once and in its order."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation.sinks import HeldSink


async def send_all(steps: list[str], seed: int) -> tuple[list[int], list[int], bool]:
    """What was written and what was sent, and whether it was released. The client's pauses depend on `seed`."""
    sent: list[int] = []
    written: list[int] = []
    pauses = random.Random(seed)

    async def client(number: int) -> None:
        for _ in range(pauses.randrange(3)):
            await asyncio.sleep(0)
        sent.append(number)

    held = HeldSink(client)
    sink = held
    with held.released_after(0 if "timer" in steps else 60):
        for step in steps:
            match step:
                case "write":
                    written.append(len(written))
                    await sink(written[-1])
                case "release":
                    sink = await held.release()  # type: ignore[assignment]
                case _:
                    await asyncio.sleep(0)
        if held.released:
            await held.release()
    return written, sent, held.released


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["write", "write", "wait", "timer", "release"]), max_size=20),
    st.integers(0, 99),
)
def test_everything_is_sent_once_and_in_order(steps: list[str], seed: int) -> None:
    written, sent, released = asyncio.run(send_all(steps, seed))
    assert sent == (written if released else [])


@pytest.mark.anyio
async def test_what_was_not_released_in_time_is_released_by_the_clock() -> None:
    sent: list[int] = []
    arrived = asyncio.Event()

    async def client(number: int) -> None:
        sent.append(number)
        arrived.set()

    held = HeldSink(client)
    with held.released_after(0.01):
        await held(1)
        assert not held.released
        await asyncio.wait_for(arrived.wait(), 30)
        await held(2)
    assert held.released
    assert sent == [1, 2]


@pytest.mark.anyio
async def test_a_client_that_fails_fails_for_the_next_writer_too() -> None:
    failed = asyncio.Event()

    async def client(number: int) -> None:
        failed.set()
        raise ConnectionError("gone")

    held = HeldSink(client)
    with held.released_after(0):
        await held(1)
        await failed.wait()
        sink = await held.release()
        with pytest.raises(ConnectionError):
            await sink(2)
