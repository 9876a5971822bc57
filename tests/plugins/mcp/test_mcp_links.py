"""Reconnecting, and keeping lists of tools, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import TextContent, Tool

from gateway.plugins.protocols import ServerTool, ToolCall, ToolDefinition
from gateway.tools.output import with_notes
from gateway_mcp.config import McpConfig, McpServerConfig
from gateway_mcp.connecting import configured_transport
from gateway_mcp.connection import ConnectionLost, McpConnection, ServerFailure
from gateway_mcp.content import result_of, server_tool
from gateway_mcp.links import FIRST_WAIT, LONGEST_WAIT, ServerLink
from gateway_mcp.servers import McpServers
from gateway_mcp.tool_list import ToolList
from tests.clock import Clock

pytestmark = pytest.mark.anyio

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]
EXAMPLE = configured_transport(McpServerConfig(command=COMMAND))


async def test_attempts_to_connect_get_rarer_and_no_request_waits_for_them() -> None:
    clock, attempts = Clock(), 0

    @asynccontextmanager
    async def nowhere() -> AsyncIterator[Any]:
        nonlocal attempts
        attempts += 1
        raise FileNotFoundError("/secret/path")
        yield

    link = ServerLink([nowhere], connect_timeout=5, clock=clock)
    waits: list[float] = []
    for _ in range(10):
        with pytest.raises(ServerFailure, match="could not be started") as failed:
            await link.connected()
        assert "secret" not in str(failed.value)
        before = attempts
        with pytest.raises(ServerFailure, match="next attempt"):
            await link.connected()
        assert attempts == before, "not tried again at once"
        began = clock.now
        while attempts == before:
            clock.now += 0.05
            if clock.now >= link._retry_at:
                break
        waits.append(clock.now - began)
    assert waits[0] <= FIRST_WAIT + 0.1
    assert waits[-1] <= LONGEST_WAIT + 0.1
    assert waits[-1] >= LONGEST_WAIT * 0.7
    assert waits[3] > waits[0]


@pytest.mark.slow
async def test_a_link_connects_anew_after_a_loss_and_tells_that_tools_may_differ() -> None:
    changes: list[None] = []
    link = ServerLink([EXAMPLE], connect_timeout=120, tools_changed=lambda: changes.append(None))
    try:
        first = await link.connected()
        assert await link.connected() is first
        with pytest.raises(ConnectionLost):
            await link.call(ToolCall("die", {}))
        before = len(changes)
        result = await link.call(ToolCall("add", {"a": 1, "b": 1}))
        assert isinstance(result.content[0], TextContent)
        assert result.content[0].text == "The sum is 2."
        assert await link.connected() is not first
        assert len(changes) > before
    finally:
        await link.close()


async def test_all_calls_under_way_end_when_the_server_dies() -> None:
    connection = McpConnection(EXAMPLE)
    await connection.open(seconds=120)
    calls = [asyncio.create_task(connection.call(ToolCall("hang", {}))) for _ in range(5)]
    await asyncio.sleep(0.2)
    with pytest.raises(ConnectionLost):
        await connection.call(ToolCall("die", {}))
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ended] == [ConnectionLost] * 5
    assert connection.lost
    await connection.close()


async def test_a_server_that_never_answers_is_given_up_and_ended() -> None:
    silent = configured_transport(McpServerConfig(command=["sleep", "60"]))
    connection = McpConnection(silent)
    with pytest.raises(ServerFailure, match=r"did not answer within 0\.5 seconds"):
        await connection.open(seconds=0.5)
    assert connection.lost
    left = [task for task in asyncio.all_tasks() if task.get_name() == "mcp connection"]
    assert not left


async def test_cancelling_who_connects_leaves_nothing_open() -> None:
    connecting = asyncio.create_task(
        McpConnection(configured_transport(McpServerConfig(command=["sleep", "60"]))).open(
            seconds=30
        )
    )
    await asyncio.sleep(0.3)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    left = [task for task in asyncio.all_tasks() if task.get_name() == "mcp connection"]
    assert not left


def named(*names: str) -> list[ServerTool]:
    return [ServerTool(definition=ToolDefinition(name=name)) for name in names]


async def test_a_list_is_fetched_once_until_it_is_old_or_changed() -> None:
    clock, fetched = Clock(), 0

    async def fetch() -> Sequence[ServerTool]:
        nonlocal fetched
        fetched += 1
        await asyncio.sleep(0)
        return named(f"tool{fetched}")

    tools = ToolList(fetch, ttl=60, clock=clock)
    await asyncio.gather(*(tools.get() for _ in range(20)))
    assert fetched == 1
    clock.now += 59
    assert await tools.get() == named("tool1")
    clock.now += 2
    assert await tools.get() == named("tool2")
    tools.changed()
    assert await tools.get() == named("tool3")


async def test_a_change_while_the_list_is_on_its_way_is_not_missed() -> None:
    fetched = 0

    async def fetch() -> Sequence[ServerTool]:
        nonlocal fetched
        fetched += 1
        if fetched == 1:
            tools.changed()
        return named(f"tool{fetched}")

    tools = ToolList(fetch, ttl=60)
    assert await tools.get() == named("tool2")
    await tools.get()
    assert fetched == 2


async def test_the_old_list_serves_while_the_server_is_away() -> None:
    away = True

    async def fetch() -> Sequence[ServerTool]:
        if away:
            raise ServerFailure("away")
        return named("tool")

    tools = ToolList(fetch, ttl=60)
    with pytest.raises(ServerFailure):
        await tools.get()
    away = False
    await tools.get()
    away = True
    tools.changed()
    assert await tools.get() == named("tool")


def test_what_is_no_text_is_named() -> None:
    from mcp.types import CallToolResult

    raw = {
        "content": [
            {"type": "text", "text": "See:"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "name": "paper", "uri": "https://a.net/p"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
        ]
    }
    result = result_of(CallToolResult.model_validate(raw))
    assert result.text == "See:\n[paper: https://a.net/p]\ninside"
    [image] = result.images
    assert (image.data, image.media_type) == (b"\0\0\0", "image/png")
    assert with_notes(result.text, result.images) == (
        "See:\n[image/png, 3 bytes: cannot be shown here]\n[paper: https://a.net/p]\ninside"
    )
    structured = CallToolResult.model_validate({"content": [], "structuredContent": {"n": 1}})
    assert result_of(structured).text == '{"n":1}'
    silent = CallToolResult.model_validate({"content": [], "isError": True})
    assert result_of(silent).failed
    assert result_of(silent).text


def test_a_schema_is_always_of_an_object() -> None:
    tool = Tool.model_validate({"name": "t", "inputSchema": {"properties": {"a": {}}}})
    served = server_tool(tool, time_limit=1, output_limit=9, needs_approval=False, counted_as=None)
    assert served.definition.parameters == {"type": "object", "properties": {"a": {}}}


async def test_a_program_that_is_not_installed_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    python = Path(sys.executable)
    commands = {"there": [python.name], "path": ["/no/such/program"], "gone": ["no-such-program"]}
    servers = {
        label: McpServerConfig(command=command, env={"PATH": str(python.parent)})
        for label, command in commands.items()
    }
    async with McpServers(McpConfig(servers=servers)):
        pass
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.mcp"] == [
        "the MCP server gone cannot be started: there is no program 'no-such-program' in PATH"
    ]
