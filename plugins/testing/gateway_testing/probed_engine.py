"""Running the checks of `gateway_doctor.checks` as tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from gateway.plugins.protocols import Engine
from gateway_doctor.checks.engine_probe import NotClaimed, Probe
from gateway_testing.on_asyncio import OnAsyncio


class ProbedEngine(OnAsyncio):
    """Base class of the contracts of engines."""

    time_limit: ClassVar[float] = 60.0
    """Time limit for any single step, in seconds."""

    def probe(self, engine: Engine) -> Probe:
        """The probe for the engine."""
        raise NotImplementedError

    async def holds(
        self, engine: Engine, check: Callable[..., Awaitable[None]], *arguments: Any
    ) -> None:
        """Run one check. Skips the test if the engine does not claim the capability."""
        probe = self.probe(engine)
        try:
            await check(probe, *arguments)
        except NotClaimed as error:
            pytest.skip(str(error))
