"""The engine proves itself by the kit that comes with Litegate."""

from collections.abc import AsyncIterator

import pytest

import gateway_shout
from gateway.hookspecs import EngineContext
from gateway.protocols import Engine
from gateway.testing import EngineContract


class TestShout(EngineContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        context = EngineContext(name="shout", path=None)
        async with gateway_shout.open_shout(gateway_shout.Config(), context) as engine:
            yield engine
