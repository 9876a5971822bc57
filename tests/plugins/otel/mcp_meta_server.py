"""An MCP server whose tool tells the `_meta` of its call."""

from __future__ import annotations

import json
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("meta")


@server.tool()
def tell(context: Context[Any, Any]) -> str:
    """Tell the metadata of the call."""
    return json.dumps(dict(context.request_context.meta or {}), default=str)


server.run("stdio")
