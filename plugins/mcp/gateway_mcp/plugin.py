"""Registers the plugin's tools. The SDK is imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import OpenTool, Register, ToolServer, hookimpl
from gateway_mcp.config import McpConfig


@asynccontextmanager
async def open_servers(config: McpConfig) -> AsyncIterator[ToolServer]:
    """The servers of `config`. Servers that are always offered are connected to immediately, others on demand."""
    from gateway_mcp.servers import McpServers

    async with McpServers(config) as servers:
        yield servers


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("mcp", open_servers, config=McpConfig, summary="tools of MCP servers")
