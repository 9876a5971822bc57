"""All MCP servers of a gateway, from which requests choose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from gateway.sdk import InvalidRequest, SessionContext, ToolServer, Unsupported
from gateway.sdk.net import Resolve, resolve
from gateway.sdk.processes import ProcessPool
from gateway.sdk.wire import McpTool
from gateway_mcp.config import McpConfig
from gateway_mcp.configured import ConfiguredServer
from gateway_mcp.connection import ServerFailure
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import ClosingConnections
from gateway_mcp.remote import RemoteServers

logger = logging.getLogger("gateway.mcp")

_LEVELS = {
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
    "mcp.client": logging.CRITICAL,
    "mcp.shared": logging.CRITICAL,
}
"""Loggers that write URLs, headers and messages, which may contain credentials. This plugin logs failures itself."""


_HELPERS: Final = 2
_MAX_WAITING: Final = 1024
"""Maximum number of results waiting to be validated; further ones become tool errors."""
_HELPER_MEMORY: Final = 536_870_912
"""Memory limit in bytes of each process that validates results."""


class McpServers(ToolServer):
    """The servers; an async context manager."""

    label = request_type = "mcp"

    def __init__(self, config: McpConfig, *, resolve: Resolve = resolve) -> None:
        self._closing_connections = ClosingConnections()
        self._pool = ProcessPool(
            processes=_HELPERS,
            memory=_HELPER_MEMORY,
            max_waiting=_MAX_WAITING,
            preload=["gateway_mcp.output_schema", "jsonschema.validators"],
        )
        self._configured = {
            label: ConfiguredServer(label, server, self._closing_connections, self._pool)
            for label, server in config.servers.items()
        }
        self._offered = [
            self._configured[label] for label, server in config.servers.items() if server.offer
        ]
        self._remote = RemoteServers(
            config.remote,
            RemoteGuard(config.remote, resolve),
            self._closing_connections,
            self._pool,
        )

    async def __aenter__(self) -> McpServers:
        for name, level in _LEVELS.items():
            logging.getLogger(name).setLevel(level)
        for server in self._configured.values():
            if (program := server.missing_program()) is not None:
                logger.warning(
                    "the MCP server %s cannot be started: there is no program %r in PATH",
                    server.label,
                    program,
                )
        await asyncio.gather(*(self._try(server) for server in self._offered))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.gather(*(server.close() for server in self._configured.values()))
        await self._closing_connections.wait_closed()
        await self._pool.close()

    async def _try(self, server: ConfiguredServer) -> None:
        """Connect in advance. An unavailable server does not stop the gateway: it is retried on demand. One that does not
        answer is waited for in the background."""
        try:
            await server.tools_soon()
        except ServerFailure as error:
            logger.warning("the MCP server %s is not there: %s", server.label, error)

    def offered(self) -> Sequence[ToolServer]:
        return self._offered

    def configured(self) -> Sequence[ToolServer]:
        return list(self._configured.values())

    def check(self, context: SessionContext) -> ToolServer:
        tool = context.entry
        assert isinstance(tool, McpTool), "the request type is mcp"
        if tool.tunnel_id is not UNSET:
            raise Unsupported(
                "This server has no tunnels. Name an MCP server by server_url in place of tunnel_id.",
                param="tunnel_id",
            )
        if isinstance(tool.connector_id, str):
            # Clients that require either server_url or connector_id use the latter for configured servers.
            if tool.connector_id not in self._configured:
                raise Unsupported(
                    f"This server has no connector '{tool.connector_id[:100]}'. Its connectors are the MCP servers of its "
                    f"configuration: {', '.join(self._configured) or 'none'}.",
                    param="connector_id",
                )
            if tool.connector_id != tool.server_label or tool.server_url is not UNSET:
                raise InvalidRequest(
                    f"The label of a connector must be its id. Send server_label '{tool.connector_id[:100]}' and "
                    "no server_url.",
                    param="connector_id",
                )
        if isinstance(tool.server_url, str):
            return self._remote.server(tool, tool.server_url, owner=context.owner)
        server = self._configured.get(tool.server_label)
        if server is None:
            raise InvalidRequest(
                f"No MCP server is configured as '{tool.server_label[:100]}', and no server_url was given. Configured: "
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
