"""What becomes of pushed outputs when a generation is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.errors import EngineUnavailable
from gateway.engines.process.connection import OutputStream
from gateway.generation.intake import Intake
from gateway.plugins.protocols import EngineOutput


@pytest.mark.anyio
async def test_a_cancelled_generation_does_not_wait_until_a_slow_client_has_read() -> None:
    kept: list[bytes] = []

    async def slow(part: bytes) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            kept.append(part)
            raise

    intake = Intake(lambda output: (), lambda deltas: b"part", slow, None)

    async def generation() -> None:
        async with intake:
            intake.is_open = True
            assert intake.push(EngineOutput(text="a"))
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(generation())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()  # as at a deadline, where nothing comes from the engine either
    for _ in range(10):
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
    assert kept == [b"part"], "the sink has to keep it"


@pytest.mark.anyio
async def test_a_push_that_cancels_its_run_breaks_no_connection() -> None:
    """As where a background run's log refuses an event because another process has ended the response."""

    def push(output: EngineOutput) -> bool:
        task.cancel()
        return True

    stream = OutputStream(1, push)

    async def read() -> None:
        await stream.take()
        await stream.take()

    stream.put(EngineOutput(text="first"))
    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    stream.put(EngineOutput(text="second"))
    stream.fail(EngineUnavailable("The engine's process has ended."))  # raised InvalidStateError
    with pytest.raises(asyncio.CancelledError):
        await task
