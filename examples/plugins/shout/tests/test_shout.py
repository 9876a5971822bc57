"""Runs Litegate's contract tests on the engine."""

from collections.abc import AsyncIterator

import pytest

import gateway_shout
from gateway.sdk import Engine, EngineContext
from gateway.testing import EngineContract


class TestShout(EngineContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        context = EngineContext(name="shout", path=None)
        async with gateway_shout.open_shout(gateway_shout.Config(), context) as engine:
            yield engine
