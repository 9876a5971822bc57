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
        self._output = OutputCheck(pool)
        self._config = config
        self._closing_connections = closing_connections
        self._tool_list = ToolList(self._list, ttl=config.tools_ttl, label=label, goes_on=True)
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
        """The tools. Only the first attempt to list them may take `connect_timeout`: later ones are waited for no longer than
        if nobody had asked for the tools."""
        return await self._tool_list.get(
            self._config.offer_timeout if self._tool_list.tried else None
        )

    async def tools_soon(self) -> Sequence[ServerTool]:
        """The tools, for requests that have not asked for them. A server that does not answer is not waited for."""
        return await self._tool_list.get(self._config.offer_timeout)

    def check(self, context: SessionContext) -> ToolServer | None:
        return _Offered(self) if context.entry is None else None

    async def probe(self) -> Sequence[ServerTool]:
        # Past the cached list, and without its lock: requests do not wait for a probe.
        return await self._list()

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolSession]:
        if self._shared:
            return nullcontext(LinkSession(self._shared, self._output, self._tool_list.repeatable))
        return private_session(
            self._link(), self._closing_connections, self._output, self._tool_list.repeatable
        )

    async def close(self) -> None:
        """Disconnect permanently. Does not raise."""
        await self._tool_list.close()
        for link in self._shared:
            await link.close()

    def _link(self) -> ServerLink:
        config = self._config
        return ServerLink(
            [configured_transport(config)],
            connect_timeout=config.connect_timeout,
            label=self.label,
            tools_changed=self._tool_list.changed if config.scope == "shared" else None,
        )

    async def _list(self) -> Sequence[ServerTool]:
        config = self._config
        link = self._shared[0] if self._shared else self._link()
        try:
            found = await link.list_tools(
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


class _Offered(ToolServer):
    """A configured server whose tools a request has without asking for them."""

    def __init__(self, server: ConfiguredServer) -> None:
        self._server = server
        self.label = server.label

    async def tools(self) -> Sequence[ServerTool]:
        return await self._server.tools_soon()

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolSession]:
        return self._server.session(context)
