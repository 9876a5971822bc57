"""Tasks that run while a context is entered."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.task_context import running_task


def test_the_work_runs_until_the_context_is_left() -> None:
    async def main() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with running_task(work()):
            await begun.wait()
            assert not ended.is_set()
        assert ended.is_set()

    asyncio.run(main())


def test_leaving_raises_what_the_work_has_raised() -> None:
    async def main() -> None:
        raised = asyncio.Event()

        async def work() -> None:
            raised.set()
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            async with running_task(work()):
                await raised.wait()

    asyncio.run(main())


def test_work_that_has_ended_may_be_left() -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def work() -> None:
            done.set()

        async with running_task(work()):
            await done.wait()

    asyncio.run(main())
