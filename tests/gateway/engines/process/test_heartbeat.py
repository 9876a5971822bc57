"""Engine processes that no longer run their event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.base.errors import EngineUnavailable
from gateway.base.task_context import running_task
from gateway.engines.process.client import engine_in_process
from gateway.engines.process.heartbeat import HeartbeatReader, HeartbeatWriter, wait_for_end
from gateway.engines.process.starting import EngineProcesses, HostSettings
from gateway.plugins.protocols import EngineRequest, TokensPrompt
from tests.gateway.engines.process.conftest import spec_of
from tests.waiting import wait_until_async


@pytest.fixture
def pipe() -> Iterator[tuple[HeartbeatReader, HeartbeatWriter]]:
    """Both ends."""
    reading, writing = os.pipe()
    reader = HeartbeatReader(reading)
    yield reader, HeartbeatWriter(writing)
    reader.close()
    os.close(writing)


@pytest.mark.anyio
async def test_a_process_counts_while_its_event_loop_runs_and_rests_after_that(
    pipe: tuple[HeartbeatReader, HeartbeatWriter],
) -> None:
    reader, writer = pipe
    assert reader.beats == 0
    async with running_task(writer.beat()):
        await asyncio.sleep(0)
        assert reader.read(0)
        assert reader.beats == 1
        await wait_until_async(lambda: reader.read(0) and reader.beats > 1, "it beats again")
    assert reader.read(0)
    assert reader.beats == 0, "it may take any time to end"


def test_a_process_that_has_closed_its_end_is_told() -> None:
    reading, writing = os.pipe()
    reader = HeartbeatReader(reading)
    os.close(writing)
    assert not reader.read(60)
    reader.close()


@pytest.mark.anyio
async def test_a_parent_that_does_not_read_holds_up_nothing(
    pipe: tuple[HeartbeatReader, HeartbeatWriter],
) -> None:
    reader, writer = pipe
    for _ in range(200_000):
        writer._write(b"\x01")
    assert reader.read(0)


def sleeping(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])


def test_a_process_that_beats_no_longer_is_killed_once(
    pipe: tuple[HeartbeatReader, HeartbeatWriter],
) -> None:
    reader, writer = pipe
    writer._write(b"\x01")
    told = []

    def silent() -> bool:
        told.append("silent")
        return True

    assert wait_for_end(sleeping(600), reader, 0.1, silent) == -signal.SIGKILL
    assert told == ["silent"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beats", "seconds"), [(b"", 0.1), (b"\x01\x00", 0.1), (b"\x01", 0.0)], ids=["opens", "ends", "never"]
)  # fmt: skip
def test_a_process_that_opens_or_closes_its_engine_may_take_any_time(
    pipe: tuple[HeartbeatReader, HeartbeatWriter], beats: bytes, seconds: float
) -> None:
    reader, writer = pipe
    writer._write(beats)
    assert wait_for_end(sleeping(2.5), reader, seconds, lambda: True) == 0


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_stopped_process_fails_its_requests_and_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    processes = EngineProcesses(HostSettings(end_seconds=2.0, timeout=10.0))
    async with engine_in_process(spec_of("scripted", delay_ms=5), processes) as engine:
        assert engine.tokenizer is not None
        ids = engine.tokenizer.encode("<|im_start|>user\n" + "word " * 400 + "<|im_end|>\n")
        request = EngineRequest(request_id="a", prompt=TokensPrompt(token_ids=ids))
        stream = engine.generate(request)
        await anext(stream)
        [process] = [each.running.pid for each in processes._processes.values() if each.running]
        os.kill(process, signal.SIGSTOP)
        with pytest.raises(EngineUnavailable, match="process has ended"):
            while True:
                await anext(stream)

        async def serves() -> bool:
            try:
                await engine.health()
            except EngineUnavailable:
                return False
            return True

        async with asyncio.timeout(180):  # a process is started
            while not await serves():  # noqa: ASYNC110  # another process has no event to wait for
                await asyncio.sleep(0.05)
    await processes.close()
    assert f"process {process} has not run its event loop for 10 s" in caplog.text
