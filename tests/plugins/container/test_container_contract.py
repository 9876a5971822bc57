"""The tool server of `container` holds what tool servers promise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.plugins.protocols import ToolServer
from gateway.wire.tools import ShellTool
from gateway_container.config import ContainerConfig
from gateway_container.plugin import open_shells
from gateway_testing import ToolServerContract
from tests.plugins.sandboxed import opened_containers

CONFIG = ContainerConfig(time_limit=60.0, offer=True)


async def server() -> AsyncIterator[ToolServer]:
    async with (
        opened_containers() as containers,
        open_shells(CONFIG, containers=containers) as opened,
    ):
        yield opened


class TestExec(ToolServerContract):
    good_call = ("container_exec", {"cmd": ["echo", "hello"]})
    bad_call = ("container_exec", {"cmd": 7})
    slow_call = ("container_exec", {"cmd": ["sleep", "600"]})

    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async for opened in server():
            yield opened


class TestShell(ToolServerContract):
    good_call = ("shell", {"commands": ["echo hello"]})
    bad_call = ("shell", {"commands": []})
    slow_call = ("shell", {"commands": ["sleep 600"]})
    entry = ShellTool(environment={"type": "container_auto"})

    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async for opened in server():
            yield opened
