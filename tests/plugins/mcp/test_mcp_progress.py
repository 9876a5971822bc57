"""Progress notifications of a server are reports of its call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.plugins.protocols import SessionContext, ToolCall
from gateway.wire.tools import McpTool
from gateway_mcp.config import McpConfig, McpServerConfig
from gateway_mcp.servers import McpServers
from tests.plugins.mcp.conftest import COMMAND

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transport", ["stdio", "streamable", "sse"])
async def test_each_notification_is_a_report(
    transport: str, request: pytest.FixtureRequest
) -> None:
    match transport:
        case "stdio":
            config = McpServerConfig(command=COMMAND)
        case "streamable":
            config = McpServerConfig(url=request.getfixturevalue("streamable").url)
        case _:
            config = McpServerConfig(url=request.getfixturevalue("sse").url, transport="sse")
    reports: list[Any] = []
    arrived = asyncio.Event()

    def report() -> None:
        reports.append(None)
        if len(reports) == 20:
            arrived.set()

    context = SessionContext(entry=McpTool(server_label="ex"))
    async with (
        McpServers(McpConfig(servers={"ex": config})) as servers,
        servers.check(context).session(context) as session,
    ):
        result = await session.call(ToolCall("steps", {"number": 20}, report))
        assert result.text == "20 steps."
        async with asyncio.timeout(60):
            await arrived.wait()
    assert len(reports) == 20
