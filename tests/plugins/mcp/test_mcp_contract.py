"""Servers on every transport hold what tool servers promise."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols import SessionContext, ToolServer
from gateway.testing import ToolServerContract
from gateway.wire.tools import McpTool
from gateway_mcp.config import McpConfig, McpServerConfig, RemoteServersConfig
from gateway_mcp.servers import McpServers

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]


class _Contract(ToolServerContract):
    good_call = ("add", {"a": 2, "b": 3})
    bad_call = ("add", {"a": "many"})
    slow_call = ("hang", {})


async def one_server(config: McpServerConfig) -> AsyncIterator[ToolServer]:
    async with McpServers(McpConfig(servers={"ex": config})) as servers:
        yield servers.check(SessionContext(entry=McpTool(server_label="ex")))


class TestStdio(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async for server in one_server(McpServerConfig(command=COMMAND)):
            yield server


class TestPooledSse(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self, sse: Any) -> AsyncIterator[ToolServer]:
        config = McpServerConfig(url=sse.url, transport="sse", connections=2)
        async for server in one_server(config):
            yield server


class TestStreamableHttpForEachResponse(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self, streamable: Any) -> AsyncIterator[ToolServer]:
        async for server in one_server(McpServerConfig(url=streamable.url, scope="response")):
            yield server


@pytest.mark.parametrize("transport", ["streamable", "sse"])
class TestRemote(_Contract):
    @pytest.fixture
    async def tool_server(
        self, transport: str, request: pytest.FixtureRequest
    ) -> AsyncIterator[ToolServer]:
        url = request.getfixturevalue(transport).url
        remote = RemoteServersConfig(enabled=True, allow_hosts=["127.0.0.1"], allow_private=True)
        async with McpServers(McpConfig(remote=remote)) as servers:
            tool = McpTool(server_label="far", server_url=url, authorization="secret")
            yield servers.check(SessionContext(entry=tool))
