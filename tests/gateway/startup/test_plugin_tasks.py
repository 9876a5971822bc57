"""Tasks of plugins: their end, their failures and their bounds."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from gateway.base.errors import RateLimited
from gateway.startup import plugin_tasks
from gateway.startup.plugin_tasks import PluginTasks

pytestmark = pytest.mark.anyio
AROUND: ContextVar[str] = ContextVar("around", default="nothing")


async def test_closing_cancels_and_waits_for_the_end() -> None:
    tasks, ended, begun = PluginTasks("p"), [], asyncio.Event()

    async def work() -> None:
        ended.append(AROUND.get())
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    AROUND.set("a request")
    task = tasks.start(work(), name="work")
    await begun.wait()
    await tasks.close()
    assert task.cancelled()
    assert ended == ["nothing", "cleaned up"], "it worked for no request"


async def test_a_failure_is_logged_and_ends_one_task(caplog: pytest.LogCaptureFixture) -> None:
    tasks = PluginTasks("p")

    async def fail() -> None:
        raise RuntimeError("a bug")

    async def wait() -> None:
        await asyncio.Event().wait()

    other = tasks.start(wait(), name="wait")
    failed = tasks.start(fail(), name="sums")
    await asyncio.wait([failed])
    await asyncio.sleep(0)
    assert not other.done()
    assert "the task 'p: sums' has failed" in caplog.text
    assert "a bug" in caplog.text
    await tasks.close()


async def test_a_task_that_does_not_end_is_left(caplog: pytest.LogCaptureFixture) -> None:
    tasks, begun, release = PluginTasks("p", end_seconds=0.01), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    task = tasks.start(stubborn(), name="stubborn")
    await begun.wait()
    await tasks.close()
    assert not task.done()
    assert "the task 'p: stubborn' has not ended" in caplog.text
    release.set()
    await task


async def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_tasks, "MAX_TASKS", 2)
    tasks = PluginTasks("p")

    async def wait() -> None:
        await asyncio.Event().wait()

    for _ in range(2):
        tasks.start(wait(), name="wait")
    with pytest.raises(RateLimited, match="has 2 tasks already"):
        tasks.start(wait(), name="wait")
    await tasks.close()
    with pytest.raises(RuntimeError, match="the plugin p is closed"):
        tasks.start(wait(), name="wait")
