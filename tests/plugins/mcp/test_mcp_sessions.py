"""Sessions that servers end are begun anew, whatever the error looks like; servers that do not answer hold nobody up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.protocols import SessionContext, ToolCall
from gateway.wire.tools import McpTool
from gateway_mcp.config import McpConfig, McpServerConfig
from gateway_mcp.configured import ConfiguredServer
from gateway_mcp.servers import McpServers
from tests.plugins.mcp.mcp_session_stub import Ending, SessionServer, rpc, session_server

pytestmark = pytest.mark.anyio

TEXT = "text/plain"
ENDINGS = {
    "TypeScript SDK": Ending(404, rpc(-32001, "Session not found")),
    "Python SDK": Ending(404, rpc(-32600, "Session not found", "server-error")),
    "Python SDK, terminated": Ending(404, rpc(-32600, "Not Found: Session has been terminated")),
    "Java SDK": Ending(404, rpc(-32603, "Session not found: session-1")),
    "C# SDK": Ending(404, rpc(-32001, "Session not found", "")),
    "Go SDK": Ending(404, "session not found\n", TEXT),
    "Rust SDK, old": Ending(401, "Unauthorized: Session not found", TEXT),
    "Rust SDK": Ending(404, "Not Found: Session not found", TEXT),
    "no body": Ending(404),
    "HTML": Ending(404, "<html>gone</html>", "text/html"),
    "JSON that is no JSON-RPC": Ending(404, '{"detail": "Not Found"}'),
    "broken JSON": Ending(404, '{"jsonrpc": "2.0", "error": '),
    "method not found": Ending(404, rpc(-32601, "Method not found")),
    "gone": Ending(410, "", TEXT),
    "400 text": Ending(400, "Invalid or missing session ID", TEXT),
    "400 -32000": Ending(400, rpc(-32000, "Bad Request: Server not initialized")),
    "400 -32600": Ending(400, rpc(-32600, "Bad Request: No valid session ID provided")),
    "400 -32602": Ending(400, rpc(-32602, "Invalid session")),
    "401": Ending(401, "", TEXT),
    "403": Ending(403, rpc(-32003, "Forbidden")),
    "409": Ending(409, "no", TEXT),
    "422": Ending(422, "expect initialize request", TEXT),
    "200 with an error": Ending(200, rpc(-32600, "Session expired")),
}
"""Refusals that say that the call was not carried out."""
UNCERTAIN = {
    "500": Ending(500, "Internal Server Error", TEXT),
    "500 -32603": Ending(500, rpc(-32603, "KeyError")),
    "502": Ending(502, "<html>", "text/html"),
    "503": Ending(503),
}


@pytest.fixture
def stub() -> Iterator[SessionServer]:
    with session_server() as server:
        yield server


@asynccontextmanager
async def configured(
    stub: SessionServer, **settings: object
) -> AsyncIterator[tuple[McpServers, ConfiguredServer]]:
    config = McpServerConfig(**{"url": stub.url, **settings})  # type: ignore[arg-type]
    async with McpServers(McpConfig(servers={"s": config})) as servers:
        server = servers.check(SessionContext(entry=McpTool(server_label="s")))
        assert isinstance(server, ConfiguredServer)
        yield servers, server


async def text_of(server: ConfiguredServer, name: str) -> str:
    text, failed = await call(server, name)
    return f"failed: {text}" if failed else text


async def call(server: ConfiguredServer, name: str) -> tuple[str, bool]:
    await server.tools()
    async with server.session(SessionContext()) as session:
        result = await session.call(ToolCall(name, {}))
    return result.text, result.failed


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_a_session_that_has_ended_is_begun_anew_and_the_call_repeated(
    stub: SessionServer, ending: Ending
) -> None:
    stub.ending = ending
    async with configured(stub) as (_, server):
        assert await call(server, "pay") == ("pay in session-1", False)
        stub.restart()
        assert await call(server, "pay") == ("pay in session-2", False)
        assert stub.calls == ["pay", "pay"], "none was carried out twice"
        assert stub.initialized == 2


@pytest.mark.parametrize("ending", UNCERTAIN.values(), ids=UNCERTAIN)
async def test_a_call_that_may_have_been_carried_out_is_repeated_only_if_it_changes_nothing(
    stub: SessionServer, ending: Ending
) -> None:
    stub.ending = ending
    async with configured(stub) as (_, server):
        assert await call(server, "read") == ("read in session-1", False)
        stub.restart()
        text, failed = await call(server, "pay")
        assert failed
        assert f"HTTP status {ending.status}" in text
        assert "whether the call was carried out is unknown" in text
        assert await call(server, "pay") == ("pay in session-2", False)
        stub.restart()
        assert await call(server, "read") == ("read in session-3", False)


@pytest.mark.parametrize(
    "ending", [*ENDINGS.values(), *UNCERTAIN.values()], ids=[*ENDINGS, *UNCERTAIN]
)
async def test_tools_are_listed_in_a_new_session(stub: SessionServer, ending: Ending) -> None:
    stub.ending = ending
    async with configured(stub, tools_ttl=0.001) as (_, server):
        assert len(await server.tools()) == 3
        stub.restart()
        await asyncio.sleep(0.01)  # the list is old now
        assert len(await server.tools()) == 3
        assert stub.initialized == 2


@pytest.mark.parametrize(
    "error",
    [
        Ending(400, rpc(-32602, "Invalid params: amount")),
        Ending(404, rpc(-32601, "Unknown tool")),
        Ending(403, "Forbidden", TEXT),
        Ending(429, "slow down", TEXT),
        Ending(500, rpc(-32603, "the database is away")),
        Ending(200, rpc(-32000, "the session of the customer has expired")),
    ],
)
async def test_an_error_of_one_call_ends_no_session(stub: SessionServer, error: Ending) -> None:
    """A session may have a state, and other calls."""
    async with configured(stub) as (_, server):
        stub.tool_errors["pay"] = error
        text, failed = await call(server, "pay")
        assert failed
        assert (f"HTTP status {error.status}" in text) == (error.status != 200), text
        assert stub.calls == ["pay"]
        assert await call(server, "read") == ("read in session-1", False)
        assert stub.initialized == 1


async def test_calls_that_run_when_the_session_ends_get_their_own_answers(
    stub: SessionServer,
) -> None:
    stub.ending = ENDINGS["TypeScript SDK"]
    async with configured(stub) as (_, server):
        await server.tools()
        slow = asyncio.create_task(call(server, "slow"))
        await asyncio.to_thread(stub.called.wait, 30)
        stub.restart()
        several = await asyncio.gather(*(call(server, "pay") for _ in range(8)))
        assert several == [("pay in session-2", False)] * 8
        assert stub.initialized == 2, "they share the new session"
        stub.meanwhile.set()
        assert await slow == ("slow in session-1", False)


async def test_expired_credentials_are_told_to_the_operator_and_to_the_model(
    stub: SessionServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with configured(stub, headers={"Authorization": "Bearer s3cret"}) as (_, server):
        assert await call(server, "pay") == ("pay in session-1", False)
        stub.refused_credentials = True
        with caplog.at_level(logging.INFO, "gateway.mcp"):
            text, failed = await call(server, "pay")
        assert failed
        assert "HTTP status 401 (Unauthorized)" in text
        [told] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert told == (
            "the MCP server s refuses the gateway's credentials (HTTP status 401 (Unauthorized)): renew the headers of "
            "[tools.mcp.servers.s]"
        )
        assert "s3cret" not in caplog.text
        assert stub.calls == ["pay"]
        text, _ = await call(server, "pay")
        assert "HTTP status 401" in text, "the pause before the next attempt names the reason"


async def test_a_server_that_does_not_answer_holds_up_neither_the_start_nor_requests(
    stub: SessionServer,
) -> None:
    stub.hung.set()
    began = time.monotonic()
    async with configured(stub, offer=True, offer_timeout=0.3, connect_timeout=60) as (servers, _):
        [offered] = servers.offered()
        unasked = offered.check(SessionContext())
        assert unasked is not None
        for _ in range(20):
            with pytest.raises(Exception, match="has not answered yet"):
                await unasked.tools()
        stub.hung.clear()
        while True:
            try:
                tools = await unasked.tools()
            except Exception:
                await asyncio.sleep(0.02)
            else:
                break
        assert [tool.definition.name for tool in tools] == ["read", "pay", "slow"]
        assert stub.initialized == 1, "one attempt, which went on"
    assert time.monotonic() - began < 30, "not the 60 seconds of an attempt"


async def test_the_old_list_is_used_at_once_while_a_server_does_not_answer(
    stub: SessionServer,
) -> None:
    settings = {"tools_ttl": 0.001, "offer_timeout": 0.2, "connect_timeout": 60}
    async with configured(stub, **settings) as (_, server):
        known = await server.tools()
        stub.hung.set()
        await asyncio.sleep(0.01)  # the list is old now
        for _ in range(20):
            assert await server.tools() == known
        stub.hung.clear()


async def test_a_server_that_has_vanished_is_connected_to_anew(stub: SessionServer) -> None:
    """A list that does not come within `connect_timeout` ends the session: a vanished host closes no connection."""
    async with configured(stub, tools_ttl=0.001, connect_timeout=0.5) as (_, server):
        await server.tools()
        stub.hung.set()
        await asyncio.sleep(0.01)  # the list is old now
        await server.tools()
        stub.hung.clear()
        assert len(await server.tools()) == 3
        assert stub.initialized == 2


@pytest.mark.parametrize(
    "ending", [Ending(404, "Could not find session", TEXT), Ending(400), Ending(401)]
)
async def test_a_session_over_sse_that_has_ended_is_begun_anew(
    stub: SessionServer, ending: Ending
) -> None:
    """Its stream may still be open: the SDK would wait for an answer, and send nothing more."""
    stub.ending = ending
    async with configured(stub, url=stub.sse_url, transport="sse") as (_, server):
        assert await call(server, "pay") == ("pay in session-1", False)
        stub.restart()
        assert await call(server, "pay") == ("pay in session-2", False)
        assert stub.calls == ["pay", "pay"]
        stub.ending = Ending(500)
        await server.tools()  # a new session may have other tools
        stub.restart()
        assert "HTTP status 500" in await text_of(server, "pay")
        assert await call(server, "pay") == ("pay in session-3", False)
