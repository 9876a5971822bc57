"""An MCP server of the protocol of 2025-06-18, by hand: with the handshake, and changes told to whoever is connected."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = ["learn"]


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A tool.", "inputSchema": {"type": "object"}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "legacy", "version": "1"},
            }
        case "tools/list":  # one tool on each page
            page = int(params.get("cursor") or 0)
            more = {"nextCursor": str(page + 1)} if page + 1 < len(TOOLS) else {}
            return {"tools": [tool(TOOLS[page])], **more}
        case "tools/call" if params["name"] == "learn":
            TOOLS.append(params["arguments"]["name"])
            send({"method": "notifications/tools/list_changed"})
            return {"content": [{"type": "text", "text": "Learned."}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"I am {params['name']}."}]}
        case _:
            return None


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        if result is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": request["id"], "result": result})
