"""What the plugin offers. The SDK is imported when it is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway import hookimpl
from gateway.hookspecs import OpenTool, Register
from gateway.protocols import ToolServers
from gateway_mcp.config import McpConfig


@asynccontextmanager
async def open_servers(config: McpConfig) -> AsyncIterator[ToolServers]:
    """The servers of `config`; connected to when they are first needed, those that are always offered at once."""
    from gateway_mcp.servers import McpServers

    async with McpServers(config) as servers:
        yield servers


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("mcp", open_servers, config=McpConfig, summary="tools of MCP servers")
