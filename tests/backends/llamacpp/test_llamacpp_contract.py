"""The promises of every engine, kept by this one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from gateway_testing import EngineContract


class TestLlamaCpp(EngineContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[Engine]:
        config = LlamaCppConfig(n_parallel=4, n_ctx=2048)
        async with open_llamacpp(config, EngineContext(name="tiny", path=None)) as opened:
            yield opened
