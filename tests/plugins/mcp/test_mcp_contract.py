"""Servers on every transport hold what tool servers promise."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.protocols import SessionContext, ToolServer
from gateway.wire.tools import McpTool
from gateway_mcp.config import McpConfig, McpServerConfig, RemoteServersConfig
from gateway_mcp.servers import McpServers
from gateway_testing import ToolServerContract
from gateway_testing.closing_contract import Reopen

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]


class _Contract(ToolServerContract):
    good_call = ("add", {"a": 2, "b": 3})
    bad_call = ("add", {"a": "many"})
    slow_call = ("hang", {})


@asynccontextmanager
async def one_server(config: McpServerConfig) -> AsyncIterator[ToolServer]:
    async with McpServers(McpConfig(servers={"ex": config})) as servers:
        yield servers.check(SessionContext(entry=McpTool(server_label="ex")))


class TestStdio(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        async with one_server(McpServerConfig(command=COMMAND)) as server:
            yield server


class TestPooledSse(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self, sse: Any) -> AsyncIterator[ToolServer]:
        config = McpServerConfig(url=sse.url, transport="sse", connections=2)
        async with one_server(config) as server:
            yield server

    @pytest.fixture
    def reopen(self, sse: Any) -> Reopen:
        return lambda: one_server(McpServerConfig(url=sse.url, transport="sse", connections=2))


class TestStreamableHttpForEachResponse(_Contract):
    @pytest.fixture(scope="class")
    async def tool_server(self, streamable: Any) -> AsyncIterator[ToolServer]:
        async with one_server(McpServerConfig(url=streamable.url, scope="response")) as server:
            yield server

    @pytest.fixture
    def reopen(self, streamable: Any) -> Reopen:
        return lambda: one_server(McpServerConfig(url=streamable.url, scope="response"))


@asynccontextmanager
async def remote_server(url: str) -> AsyncIterator[ToolServer]:
    remote = RemoteServersConfig(enabled=True, allow_hosts=["127.0.0.1"], allow_private=True)
    async with McpServers(McpConfig(remote=remote)) as servers:
        tool = McpTool(server_label="far", server_url=url, authorization="secret")
        yield servers.check(SessionContext(entry=tool))


@pytest.mark.parametrize("transport", ["streamable", "sse"])
class TestRemote(_Contract):
    @pytest.fixture
    def reopen(self, transport: str, request: pytest.FixtureRequest) -> Reopen:
        return lambda: remote_server(request.getfixturevalue(transport).url)

    @pytest.fixture
    async def tool_server(self, reopen: Reopen) -> AsyncIterator[ToolServer]:
        async with reopen() as server:
            yield server
