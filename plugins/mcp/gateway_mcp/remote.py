"""A server that a request names by its URL."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import json

from gateway.errors import InvalidRequest, PermissionDenied, Unsupported
from gateway.net.guard import AddressRefused
from gateway.protocols import ServedTool, ToolSession
from gateway.wire.tools import McpTool
from gateway_mcp.config import RemoteConfig
from gateway_mcp.connection import ServerFailure
from gateway_mcp.content import served_tool
from gateway_mcp.dialling import dial_http, likely_transports
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import Farewells, Link, own_link
from gateway_mcp.tool_list import ToolList

KEPT_LISTS = 256
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
"""Headers that belong to the transport; a request that sets them could speak for it."""


class RemoteServers:
    """The servers that requests name, within the rules of `[tools.mcp.remote]`; keeps their tool lists for a while."""

    def __init__(self, config: RemoteConfig, guard: RemoteGuard, farewells: Farewells) -> None:
        self._config = config
        self._farewells = farewells
        self._guard = guard
        self._lists: OrderedDict[bytes, ToolList] = OrderedDict()

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
            tool.server_label, url, headers, self._config, self._guard, self._farewells
        )
        # Never the credentials themselves: only what tells one set from another.
        key = hashlib.sha256(json.encode([owner, url, sorted(headers.items())])).digest()
        kept = self._lists.get(key)
        if kept is None:
            kept = self._lists[key] = ToolList(server.list_tools, ttl=self._config.tools_ttl)
        self._lists.move_to_end(key)
        while len(self._lists) > KEPT_LISTS:
            self._lists.popitem(last=False)
        server.tool_list = kept
        return server


class RemoteServer:
    """A `ToolServer` for one request. Each response has a connection of its own."""

    tool_list: ToolList

    def __init__(
        self,
        label: str,
        url: str,
        headers: Mapping[str, str],
        config: RemoteConfig,
        guard: RemoteGuard,
        farewells: Farewells,
    ) -> None:
        self._label = label
        self._farewells = farewells
        self._url = url
        self._headers = headers
        self._config = config
        self._guard = guard

    @property
    def label(self) -> str:
        return self._label

    async def tools(self) -> Sequence[ServedTool]:
        """The tools. Raises `PermissionDenied` where the host's addresses are refused, and `ServerFailure`."""
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

    def session(self, response_id: str) -> AbstractAsyncContextManager[ToolSession]:
        return own_link(self._link(), self._farewells)

    async def list_tools(self) -> Sequence[ServedTool]:
        """Ask the server, on a connection for this alone."""
        config = self._config
        link = self._link()
        try:
            found = await (await link.connected()).list_tools(seconds=config.connect_timeout)
        finally:
            self._farewells.close(link)
        if len(found) > config.max_tools:
            raise ServerFailure(f"it has more than {config.max_tools} tools")
        return [
            served_tool(
                tool,
                time_limit=config.time_limit,
                output_limit=config.max_output_bytes,
                needs_approval=True,
                counted_as="remote mcp",
            )
            for tool in found
        ]

    def _link(self) -> Link:
        config = self._config
        return Link(
            [
                dial_http(
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
    """What authorizes the request at the server. An error here names the header and never says its value."""
    headers = dict(tool.headers) if isinstance(tool.headers, dict) else {}
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
