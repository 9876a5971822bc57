"""The tool server of `python` holds what tool servers promise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.errors import ConfigurationError
from gateway.protocols import ToolServer
from gateway.testing import ToolServerContract
from gateway.wire.tools import CodeInterpreterTool
from gateway_container.config import ContainersConfig
from gateway_container.plugin import open_resource
from gateway_python.plugin import PythonConfig, open_interpreters

CONFIG = PythonConfig(time_limit=60.0)


class _Contract(ToolServerContract):
    good_call = ("python", {"code": "print(6 * 7)"})
    bad_call = ("python", {"code": 7})
    slow_call = ("python", {"code": "import time; time.sleep(600)"})


async def server() -> AsyncIterator[ToolServer]:
    try:
        context = open_resource(ContainersConfig(max_running=4, start_timeout=60.0))
        containers = await context.__aenter__()
    except ConfigurationError as error:
        pytest.skip(str(error))
    try:
        async with open_interpreters(CONFIG, containers=containers) as opened:
            yield opened
    finally:
        await context.__aexit__(None, None, None)


class TestForEachResponse(_Contract):
    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async for opened in server():
            yield opened


class TestForOneRequest(_Contract):
    entry = CodeInterpreterTool()

    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async for opened in server():
            yield opened
