"""A server of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from gateway.protocols import ServedTool, ToolSession
from gateway_mcp.config import ServerConfig
from gateway_mcp.content import served_tool
from gateway_mcp.dialling import dial_configured
from gateway_mcp.links import Farewells, Link, LinkSession, own_link
from gateway_mcp.tool_list import ToolList


class ConfiguredServer:
    """A `ToolServer`. Shared connections are made when they are needed and kept; others live as long as a response."""

    def __init__(self, label: str, config: ServerConfig, farewells: Farewells) -> None:
        self._label = label
        self._config = config
        self._farewells = farewells
        self._tool_list = ToolList(self._list, ttl=config.tools_ttl)
        self._shared = (
            [self._link() for _ in range(config.connections)] if config.scope == "shared" else []
        )

    @property
    def label(self) -> str:
        return self._label

    async def tools(self) -> Sequence[ServedTool]:
        return await self._tool_list.get()

    def session(self, response_id: str) -> AbstractAsyncContextManager[ToolSession]:
        if self._shared:
            return self._shared_session()
        return own_link(self._link(), self._farewells)

    async def close(self) -> None:
        """Disconnect for good. Does not raise."""
        for link in self._shared:
            await link.close()

    @asynccontextmanager
    async def _shared_session(self) -> AsyncIterator[ToolSession]:
        yield LinkSession(self._shared)

    def _link(self) -> Link:
        config = self._config
        return Link(
            [dial_configured(config)],
            connect_timeout=config.connect_timeout,
            tools_changed=self._tool_list.changed if config.scope == "shared" else None,
        )

    async def _list(self) -> Sequence[ServedTool]:
        config = self._config
        link = self._shared[0] if self._shared else self._link()
        try:
            connection = await link.connected()
            found = await connection.list_tools(seconds=config.connect_timeout)
        finally:
            if not self._shared:
                self._farewells.close(link)
        return [
            served_tool(
                tool,
                time_limit=config.time_limit,
                output_limit=config.max_output_bytes,
                needs_approval=config.require_approval == "always",
                counted_as=None,
            )
            for tool in found
            if config.allowed_tools is None or tool.name in config.allowed_tools
        ]
