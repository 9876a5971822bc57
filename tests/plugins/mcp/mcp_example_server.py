"""A real MCP server, of the SDK's own classes, that misbehaves on demand. Run: `mcp_example_server.py TRANSPORT [PORT]`."""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

server = MCPServer("example")
state = {"count": 0}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"The sum is {a + b}."


@server.tool()
def count() -> str:
    """Count the calls of this process."""
    state["count"] += 1
    return f"Call {state['count']} of process {os.getpid()}."


@server.tool()
def broken() -> str:
    """Fail."""
    raise ToolError("it is broken")


@server.tool()
def big() -> str:
    """Give a megabyte."""
    return "x" * 1_000_000


@server.tool()
async def hang() -> str:
    """Take a very long time."""
    await anyio.sleep(60)
    return "at last"


@server.tool()
async def steps(number: int, context: Context[Any, Any]) -> str:
    """Report progress many times."""
    for step in range(number):
        await context.report_progress(step, number, "going on")
    return f"{number} steps."


@server.tool()
def die() -> str:
    """End the process in the middle of the call."""
    os._exit(1)


@server.tool()
async def learn(name: str, context: Context[Any, Any]) -> str:
    """Get a new tool."""

    def learned() -> str:
        return f"I am {name}."

    server.add_tool(learned, name=name, description="Learned.")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "Learned."


def with_sessions(app: Any) -> Any:
    """The server as its SDK was when all had sessions: the question for the newer protocol is not understood."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-protocol-version") in (
            None,
            *(v.encode() for v in HANDSHAKE_PROTOCOL_VERSIONS),
        ):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send(
            {"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"}
        )

    return older


if __name__ == "__main__":
    transport = sys.argv[1]
    if transport == "stdio":
        server.run("stdio")
    elif "sessions" in sys.argv[3:]:  # the protocol before 2026-07-28
        uvicorn.run(with_sessions(server.streamable_http_app()), port=int(sys.argv[2]))
    else:
        server.run(transport, host="127.0.0.1", port=int(sys.argv[2]))  # type: ignore[call-overload]
