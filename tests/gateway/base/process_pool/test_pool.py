"""Helper processes: results, failures, deadlines, memory, turns."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time

import pytest

from gateway.base.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperDied,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
from tests.waiting import wait_until_async


def _run(coroutine):  # type: ignore[no-untyped-def]
    return asyncio.run(coroutine)


def _lives(process: int) -> bool:
    return os.path.exists(f"/proc/{process}")


def test_a_function_runs_in_another_process() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            assert await pool.run(os.getpid, seconds=120) in pool.process_ids
            assert await pool.run(sys.intern, "é\x00", seconds=120) == "é\x00"
            assert len(pool.process_ids) == 1, "the process is kept for further calls"

    _run(body())


def test_an_exception_is_told_by_name_and_text() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            with pytest.raises(FunctionFailed) as caught:
                await pool.run(os.stat, "/no/such/file", seconds=120)
            assert caught.value.name == "FileNotFoundError"
            assert await pool.run(os.getpid, seconds=120) in pool.process_ids

    _run(body())


def test_a_call_past_its_deadline_is_killed_and_the_next_one_runs() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            (first,) = [await pool.run(os.getpid, seconds=120)]
            with pytest.raises(HelperDeadlineExceeded):
                # Catastrophic backtracking holds the interpreter's lock: no thread could be stopped in it.
                await pool.run(re.match, "^(a+)+$", "a" * 64 + "b", seconds=0.3)
            assert not _lives(first)
            assert await pool.run(os.getpid, seconds=120) != first

    _run(body())


def test_a_cancelled_call_is_killed() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            call = asyncio.create_task(pool.run(time.sleep, 600, seconds=900))
            await wait_until_async(lambda: pool.process_ids)
            (process,) = pool.process_ids
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not _lives(process)

    _run(body())


def test_a_process_ends_after_so_many_calls() -> None:
    async def body() -> None:
        async with ProcessPool(max_calls=2) as pool:
            first, second, third = [await pool.run(os.getpid, seconds=120) for _ in range(3)]
            assert first == second != third
            assert not _lives(first)

    _run(body())


def test_a_process_that_dies_fails_its_call_alone() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            with pytest.raises(HelperDied):
                await pool.run(os._exit, 3, seconds=120)
            assert await pool.run(os.getpid, seconds=120)

    _run(body())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space hold on Linux")
def test_memory_is_bounded() -> None:
    async def body() -> None:
        async with ProcessPool(memory=256 << 20) as pool:
            with pytest.raises(FunctionFailed, match="MemoryError"):
                await pool.run(bytes, 1 << 30, seconds=120)

    _run(body())


def test_a_result_is_bounded() -> None:
    async def body() -> None:
        async with ProcessPool(max_result=1000) as pool:
            with pytest.raises(HelperDied, match="1000 bytes"):
                await pool.run(bytes, 2000, seconds=120)

    _run(body())


def test_those_who_wait_take_turns_by_key_and_are_bounded() -> None:
    async def body() -> None:
        order: list[str] = []

        async def call(key: str) -> None:
            await pool.run(time.sleep, 0.01, seconds=120, key=key)
            order.append(key)

        async with ProcessPool(max_waiting=5) as pool:
            async with asyncio.TaskGroup() as group:
                for key in "aaaab":
                    group.create_task(call(key))
                await asyncio.sleep(0)
            assert order.index("b") == 2, "one runs, one of each key follows"
            tasks = [asyncio.create_task(call("a")) for _ in range(7)]
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(each, PoolBusy) for each in done) == 1

    _run(body())


def test_a_call_that_is_cancelled_while_it_waits_gives_its_turn_on() -> None:
    async def body() -> None:
        async with ProcessPool() as pool:
            tasks = [asyncio.create_task(pool.run(time.sleep, 0.05, seconds=120)) for _ in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            tasks[2].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pool.run(os.getpid, seconds=120)

    _run(body())


def test_calls_that_are_cancelled_while_they_wait_leave_their_places_to_others() -> None:
    """Clients that leave must not fill the queue until the running call ends."""

    async def body() -> None:
        async with ProcessPool(max_waiting=2) as pool:
            long = asyncio.create_task(pool.run(time.sleep, 600, seconds=900))
            for key in ("", "a"):
                waiting = [
                    asyncio.create_task(pool.run(os.getpid, seconds=120, key=key)) for _ in range(2)
                ]
                await asyncio.sleep(0)
                for each in waiting:
                    each.cancel()
                await asyncio.wait(waiting)
            others = [asyncio.create_task(pool.run(os.getpid, seconds=120)) for _ in range(2)]
            await asyncio.sleep(0)
            long.cancel()
            await asyncio.gather(*others)

    _run(body())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_helper_that_is_being_started_does_not_outlive_the_pool() -> None:
    async def body() -> None:
        pool = ProcessPool()
        call = asyncio.create_task(pool.run(time.sleep, 600, seconds=900))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(HelperDied):
            await call
        assert not pool.process_ids

    _run(body())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_helper_has_no_descriptor_or_variable_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "canary")

    async def body() -> None:
        reading, writing = os.pipe()
        os.set_inheritable(reading, True)
        async with ProcessPool() as pool:
            assert await pool.run(os.getenv, "GATEWAY_SECRET", seconds=120) is None
            names = await pool.run(os.listdir, "/proc/self/fd", seconds=120)
            targets = set()
            for name in names:
                try:
                    targets.add(await pool.run(os.readlink, f"/proc/self/fd/{name}", seconds=120))
                except FunctionFailed:
                    continue
            mine = os.readlink(f"/proc/self/fd/{reading}")
            assert mine not in targets
            assert len(names) <= 6, targets
        os.close(reading)
        os.close(writing)

    _run(body())


def test_a_process_that_writes_more_than_anybody_reads_ends() -> None:
    """As when a deadline comes in the middle of a large result, and the buffer of its pipe is full."""

    async def body() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import sys, time; sys.stdout.write('x' * 10_000_000); time.sleep(600)",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readexactly(1)
        await wait_until_async(lambda: len(process.stdout._buffer) >= 2**17)  # type: ignore[union-attr]
        process.kill()
        async with asyncio.timeout(60):
            await wait_for_end(process)
        assert process.returncode == -9

    _run(body())
