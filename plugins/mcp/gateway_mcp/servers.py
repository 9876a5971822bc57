"""All MCP servers of a gateway, for requests to choose from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from msgspec import UNSET

from gateway.errors import InvalidRequest, Unsupported
from gateway.net.guard import Resolve, resolve
from gateway.protocols import ToolServer
from gateway.wire.tools import McpTool, Tool
from gateway_mcp.config import McpConfig
from gateway_mcp.configured import ConfiguredServer
from gateway_mcp.connection import ServerFailure
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import Farewells
from gateway_mcp.remote import RemoteServers

logger = logging.getLogger("gateway.mcp")

_LEVELS = {
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
    "mcp.client": logging.CRITICAL,
    "mcp.shared": logging.CRITICAL,
}
"""Loggers that write URLs, headers and messages, which may hold credentials. What fails is told by this plugin's own."""


class McpServers:
    """A `ToolServers`, to be entered and left."""

    def __init__(self, config: McpConfig, *, resolve: Resolve = resolve) -> None:
        self._farewells = Farewells()
        self._configured = {
            label: ConfiguredServer(label, server, self._farewells)
            for label, server in config.servers.items()
        }
        self._offered = [
            self._configured[label] for label, server in config.servers.items() if server.offer
        ]
        self._remote = RemoteServers(
            config.remote, RemoteGuard(config.remote, resolve), self._farewells
        )

    async def __aenter__(self) -> McpServers:
        for name, level in _LEVELS.items():
            logging.getLogger(name).setLevel(level)
        await asyncio.gather(*(self._try(server) for server in self._offered))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.gather(*(server.close() for server in self._configured.values()))
        await self._farewells.over()

    async def _try(self, server: ConfiguredServer) -> None:
        """Connect in advance. A server that is away does not stop the gateway: it is tried again when it is needed."""
        try:
            await server.tools()
        except ServerFailure as error:
            logger.warning("the MCP server %s is not there: %s", server.label, error)

    @property
    def request_type(self) -> str:
        return "mcp"

    def offered(self) -> Sequence[ToolServer]:
        return self._offered

    def for_request(self, tool: Tool, *, owner: str | None) -> ToolServer:
        assert isinstance(tool, McpTool), "the request type is mcp"
        if tool.tunnel_id is not UNSET:
            raise Unsupported(
                "This server has no tunnels. Name an MCP server by server_url in place of tunnel_id.",
                param="tunnel_id",
            )
        if isinstance(tool.connector_id, str):
            # Clients that ask for one of server_url and connector_id reach the configured servers by the latter.
            if tool.connector_id not in self._configured:
                raise Unsupported(
                    f"This server has no connector '{tool.connector_id}'. Its connectors are the MCP servers of its "
                    f"configuration: {', '.join(self._configured) or 'none'}.",
                    param="connector_id",
                )
            if tool.connector_id != tool.server_label or tool.server_url is not UNSET:
                raise InvalidRequest(
                    f"A connector of this server has its own label. Send server_label '{tool.connector_id}' with it, and "
                    "no server_url.",
                    param="connector_id",
                )
        if isinstance(tool.server_url, str):
            return self._remote.server(tool, tool.server_url, owner=owner)
        server = self._configured.get(tool.server_label)
        if server is None:
            raise InvalidRequest(
                f"No MCP server is configured as '{tool.server_label}', and no server_url was given. Configured: "
                f"{', '.join(self._configured) or 'none'}.",
                param="server_label",
                code="unknown_mcp_server",
            )
        for field in ("headers", "authorization"):
            if getattr(tool, field) is not UNSET:
                raise InvalidRequest(
                    f"{field} cannot be sent to the configured server '{tool.server_label}'. Leave it out.",
                    param=field,
                )
        return server
