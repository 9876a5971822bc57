"""A real MCP server whose tool leaves a line in a file each time it is run. Run: `payments_mcp_server.py FILE PORT`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("payments")


def note(line: str) -> int:
    """Add a line to the file; how many it has then."""
    file = Path(sys.argv[1])
    with file.open("a") as out:
        out.write(line)
    return len(file.read_text().splitlines())


@server.tool()
async def pay(amount: int, seconds: float = 0.3, fails: bool = False) -> str:
    """Pay."""
    number = note(f"{amount}\n")
    await anyio.sleep(seconds)
    if fails:
        raise ToolError(f"payment {number} was refused")
    return f"Paid {amount}, as payment {number}."


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
