"""Checks that embedding and scoring engines have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.sdk import InvalidRequest
from gateway_doctor.checks.engine_probe import GuaranteeViolated, Probe, require

T = TypeVar("T")


async def after_cancelling(
    probe: Probe, work: Callable[[], Awaitable[object]], following: Callable[[], Awaitable[T]]
) -> T:
    """Cancel `work` before and while it runs. Then return the result of `following`, which would have to wait if the
    cancelled work were not aborted."""
    async with asyncio.timeout(probe.time_limit):
        for pause in (0.0, 0.0, 0.001, 0.01, 0.01):
            task = asyncio.ensure_future(work())
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait([task])
        return await following()


async def adapters_are_known(probe: Probe, ask: Callable[[str], Awaitable[object]]) -> None:
    """`ask` succeeds for each adapter of the engine, and an unknown name is rejected."""
    probe.needs("adapters")
    for name in probe.engine.info.adapters:
        await ask(name)
    try:
        await ask("no-such-adapter")
    except InvalidRequest as error:
        require(error.param == "model", f"a missing adapter is at model, not at {error.param}")
    else:
        raise GuaranteeViolated("it took an adapter that is not there")
