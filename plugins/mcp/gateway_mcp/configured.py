"""A configured server."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from gateway.sdk import ServerTool, SessionContext, ToolServer, ToolSession
from gateway.sdk.processes import ProcessPool
from gateway_mcp.config import McpServerConfig
from gateway_mcp.connecting import configured_transport
from gateway_mcp.content import server_tool
from gateway_mcp.links import ClosingConnections, LinkSession, ServerLink, private_session
from gateway_mcp.output_check import OutputCheck
from gateway_mcp.tool_list import ToolList


class ConfiguredServer(ToolServer):
    """Its shared connections are opened on demand and kept; others live as long as a response."""

    def __init__(
        self,
        label: str,
        config: McpServerConfig,
        closing_connections: ClosingConnections,
        pool: ProcessPool,
    ) -> None:
        self.label = label
        self._output = OutputCheck(pool, label)
        self._config = config
        self._closing_connections = closing_connections
        self._tool_list = ToolList(self._list, ttl=config.tools_ttl)
        self._shared = (
            [self._link() for _ in range(config.connections)] if config.scope == "shared" else []
        )

    def missing_program(self) -> str | None:
        """The name of its program, if no folder of PATH has it. A path is not checked."""
        if not self._config.command or "/" in self._config.command[0]:
            return None
        program = self._config.command[0]
        path = self._config.env.get("PATH")
        return program if shutil.which(program, path=path) is None else None

    async def tools(self) -> Sequence[ServerTool]:
        return await self._tool_list.get()

    async def probe(self) -> Sequence[ServerTool]:
        # Past the cached list, and without its lock: requests do not wait for a probe.
        return await self._list()

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolSession]:
        if self._shared:
            return nullcontext(LinkSession(self._shared, self._output))
        return private_session(self._link(), self._closing_connections, self._output)

    async def close(self) -> None:
        """Disconnect permanently. Does not raise."""
        for link in self._shared:
            await link.close()

    def _link(self) -> ServerLink:
        config = self._config
        return ServerLink(
            [configured_transport(config)],
            connect_timeout=config.connect_timeout,
            tools_changed=self._tool_list.changed if config.scope == "shared" else None,
        )

    async def _list(self) -> Sequence[ServerTool]:
        config = self._config
        link = self._shared[0] if self._shared else self._link()
        try:
            connection = await link.connected()
            found = await connection.list_tools(
                seconds=config.connect_timeout, max_bytes=config.max_tools_bytes
            )
        finally:
            if not self._shared:
                self._closing_connections.close(link)
        self._output.listed(found)
        return [
            server_tool(
                tool,
                time_limit=config.time_limit,
                output_limit=config.max_output_bytes,
                needs_approval=config.require_approval == "always",
                counted_as=None,
            )
            for tool in found
            if config.allowed_tools is None or tool.name in config.allowed_tools
        ]
