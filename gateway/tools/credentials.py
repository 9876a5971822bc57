"""Removing the credentials of MCP entries from requests before these are shown, stored or logged."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from gateway.tools.client_functions import BRINGS_TOOLS
from gateway.wire import items
from gateway.wire import tools as wire


def without_credentials(tools: Sequence[wire.Tool]) -> list[wire.Tool]:
    """Copy `tools` without MCP credentials, so that they can be shown, stored and logged."""
    return [_without(tool) if isinstance(tool, wire.McpTool) else tool for tool in tools]


def items_without_credentials(own: Sequence[items.Item]) -> list[items.Item]:
    """Copy items that contain tools, without MCP credentials."""
    return [
        msgspec.structs.replace(item, tools=without_credentials(item.tools))
        if isinstance(item, BRINGS_TOOLS)
        else item
        for item in own
    ]


def server_addresses(tools: Sequence[wire.Tool]) -> dict[str, str]:
    """The URLs of the MCP servers in a request, by label, without credentials."""
    return {
        tool.server_label: _bare(tool.server_url)
        for tool in tools
        if isinstance(tool, wire.McpTool) and isinstance(tool.server_url, str)
    }


def _without(tool: wire.McpTool) -> wire.McpTool:
    url = tool.server_url
    return msgspec.structs.replace(
        tool,
        authorization=UNSET,
        headers=UNSET,
        server_url=_bare(url) if isinstance(url, str) else UNSET,
    )


def _bare(url: str) -> str:
    """Remove user, password, query and fragment from a URL: any of them may contain a secret."""
    url = url.partition("#")[0].partition("?")[0]
    scheme, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"
