"""The tool server of `python` holds what tool servers promise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.plugins.protocols import ToolServer
from gateway.wire.tools import CodeInterpreterTool
from gateway_python.plugin import PythonConfig, open_interpreters
from gateway_testing import ToolServerContract
from tests.plugins.sandboxed import opened_containers

CONFIG = PythonConfig(time_limit=60.0)


class _Contract(ToolServerContract):
    good_call = ("python", {"code": "print(6 * 7)"})
    bad_call = ("python", {"code": 7})
    slow_call = ("python", {"code": "import time; time.sleep(600)"})


async def server() -> AsyncIterator[ToolServer]:
    async with (
        opened_containers() as containers,
        open_interpreters(CONFIG, containers=containers) as opened,
    ):
        yield opened


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
