"""A server that a request names by URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import json

from gateway.sdk import (
    InvalidRequest,
    PermissionDenied,
    ServerTool,
    SessionContext,
    ToolServer,
    ToolSession,
    Unsupported,
)
from gateway.sdk.caches import LruCache
from gateway.sdk.net import AddressRefused
from gateway.sdk.processes import ProcessPool
from gateway.sdk.wire import McpTool
from gateway_mcp.config import RemoteServersConfig
from gateway_mcp.connecting import http_transport, likely_transports
from gateway_mcp.connection import ServerFailure
from gateway_mcp.content import server_tool
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import ClosingConnections, ServerLink, private_session
from gateway_mcp.output_check import OutputCheck
from gateway_mcp.tool_list import ToolList

KEPT_LISTS = 256
MAX_HEADERS = 64
"""Maximum number of headers that a request gives for a server. HTTP libraries pass over them many times on the event loop."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]{0,8192}\Z")
_OURS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the transport. A request that could set them could manipulate it."""


class RemoteServers:
    """The servers that requests name, within the rules of `[tools.mcp.remote]`. Caches their tool lists."""

    def __init__(
        self,
        config: RemoteServersConfig,
        guard: RemoteGuard,
        closing_connections: ClosingConnections,
        pool: ProcessPool,
    ) -> None:
        self._pool = pool
        self._config = config
        self._closing_connections = closing_connections
        self._guard = guard
        self._lists = LruCache[bytes, tuple[ToolList, OutputCheck]](KEPT_LISTS)

    def server(self, tool: McpTool, url: str, *, owner: str | None) -> RemoteServer:
        """The server at `url`. Raises `InvalidRequest` or `PermissionDenied`, with a `param` relative to the entry."""
        if not self._config.enabled:
            raise Unsupported(
                "This server does not connect to MCP servers that requests name by server_url.",
                param="server_url",
                code="unsupported_tool",
            )
        self._guard.check_url(url)
        headers = _headers(tool)
        server = RemoteServer(
            tool.server_label, url, headers, self._config, self._guard, self._closing_connections
        )
        # A digest distinguishes credentials without storing them.
        key = hashlib.sha256(json.encode([owner, url, sorted(headers.items())])).digest()
        kept = self._lists.get(key)
        if kept is None:
            kept = (
                ToolList(server.list_tools, ttl=self._config.tools_ttl, label="of a request"),
                OutputCheck(self._pool),
            )
            self._lists.put(key, kept)
        server.tool_list, server.output = kept
        return server


class RemoteServer(ToolServer):
    """A server of one request. Each response has its own connection."""

    tool_list: ToolList
    output: OutputCheck
    """Shared by all servers with this URL and these credentials, like the tool list."""

    def __init__(
        self,
        label: str,
        url: str,
        headers: Mapping[str, str],
        config: RemoteServersConfig,
        guard: RemoteGuard,
        closing_connections: ClosingConnections,
    ) -> None:
        self.label = label
        self._closing_connections = closing_connections
        self._url = url
        self._headers = headers
        self._config = config
        self._guard = guard

    async def tools(self) -> Sequence[ServerTool]:
        """The tools. Raises `PermissionDenied` if the host's addresses are refused, and `ServerFailure`."""
        try:
            await self._guard.check_addresses(self._url)
        except AddressRefused as error:
            raise PermissionDenied(
                f"This server does not connect to this MCP server: {error}.",
                param="server_url",
                code="host_not_allowed",
            ) from None
        except OSError:
            raise ServerFailure("its host's name cannot be resolved") from None
        return await self.tool_list.get()

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolSession]:
        return private_session(
            self._link(), self._closing_connections, self.output, self.tool_list.repeatable
        )

    async def list_tools(self) -> Sequence[ServerTool]:
        """List the tools, on a separate connection."""
        config = self._config
        link = self._link()
        try:
            found = await link.list_tools(
                seconds=config.connect_timeout, max_bytes=config.max_tools_bytes
            )
        finally:
            self._closing_connections.close(link)
        if len(found) > config.max_tools:
            raise ServerFailure(f"it has more than {config.max_tools} tools")
        self.output.listed(found)
        return [
            server_tool(
                tool,
                time_limit=config.time_limit,
                output_limit=config.max_output_bytes,
                needs_approval=True,
                counted_as="remote mcp",
            )
            for tool in found
        ]

    def _link(self) -> ServerLink:
        config = self._config
        return ServerLink(
            [
                http_transport(
                    self._url,
                    transport,
                    self._headers,
                    connect_timeout=config.connect_timeout,
                    max_message_bytes=config.max_message_bytes,
                    guard=self._guard,
                )
                for transport in likely_transports(self._url)
            ],
            connect_timeout=config.connect_timeout,
        )


def _headers(tool: McpTool) -> dict[str, str]:
    """The headers that authorize the request at the server. Errors name the header but never show its value."""
    headers = dict(tool.headers) if isinstance(tool.headers, dict) else {}
    if len(headers) > MAX_HEADERS:
        raise InvalidRequest(
            f"At most {MAX_HEADERS} headers can be sent to an MCP server, and these are {len(headers)}. Leave some out.",
            param="headers",
            code="invalid_value",
        )
    for name, value in headers.items():
        if not _HEADER_NAME.match(name) or not _HEADER_VALUE.match(value):
            raise InvalidRequest(
                "A header has a name or a value that HTTP does not allow.",
                param="headers",
                code="invalid_value",
            )
        if name.lower() in _OURS:
            raise InvalidRequest(
                f"The header '{name}' belongs to the transport. Leave it out.",
                param="headers",
                code="invalid_value",
            )
    if isinstance(tool.authorization, str):
        if any(name.lower() == "authorization" for name in headers):
            raise InvalidRequest(
                "Send either authorization or the header Authorization.",
                param="authorization",
                code="mutually_exclusive_parameters",
            )
        if not _HEADER_VALUE.match(tool.authorization):
            raise InvalidRequest(
                "authorization has characters that HTTP does not allow.",
                param="authorization",
                code="invalid_value",
            )
        headers["Authorization"] = f"Bearer {tool.authorization}"
    return headers
