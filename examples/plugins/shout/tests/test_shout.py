"""Runs Litegate's contract tests on the engine."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

import gateway_shout
from gateway.sdk import Engine, EngineContext
from gateway_testing import EngineContract


class TestShout(EngineContract):
    @pytest.fixture
    def reopen(self) -> Callable[[], AbstractAsyncContextManager[Engine]]:
        context = EngineContext(name="shout", path=None)
        return lambda: gateway_shout.open_shout(gateway_shout.Config(), context)

    @pytest.fixture
    async def engine(
        self, reopen: Callable[[], AbstractAsyncContextManager[Engine]]
    ) -> AsyncIterator[Engine]:
        async with reopen() as engine:
            yield engine
