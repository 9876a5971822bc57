"""Sessions that servers end are begun anew, whatever the error looks like; servers that do not answer hold nobody up."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.protocols import SessionContext, ToolCall
from gateway.wire.tools import McpTool
from gateway_mcp.config import McpConfig, McpServerConfig, RemoteServersConfig
from gateway_mcp.configured import ConfiguredServer
from gateway_mcp.connection import ServerFailure
from gateway_mcp.http import _tls_context
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=tools.example", "-addext", "subjectAltName=DNS:tools.example",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


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


@pytest.mark.parametrize("around", ["\n", "\r\n", " ", "\ufeff", "\u00a0", "\u200b"])
async def test_what_surrounds_a_headers_value_is_not_sent(stub: SessionServer, around: str) -> None:
    async with configured(stub, headers={"Authorization": f"{around}Bearer key{around}"}) as (
        _,
        server,
    ):
        assert await call(server, "pay") == ("pay in session-1", False)
    assert {each["authorization"] for each in stub.headers} == {"Bearer key"}


@pytest.mark.parametrize("value", ["Bearer a\nb", "Bearer \ufeffkey", "Bearer \u200bx", "a\x00"])
def test_a_header_that_cannot_be_sent_stops_the_start_with_its_name(value: str) -> None:
    raw = {"servers": {"s": {"url": "https://a.example/mcp", "headers": {"X-Key": value}}}}
    with pytest.raises(msgspec.ValidationError, match=r"headers\.X-Key has the character") as told:
        msgspec.convert(raw, McpConfig)
    assert value not in str(told.value)


@pytest.mark.parametrize("exempt", [False, True])
async def test_servers_with_tls_are_reached_through_the_proxy_of_the_environment(
    stub: SessionServer, certificate: Path, monkeypatch: pytest.MonkeyPatch, exempt: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    stub.server.socket = context.wrap_socket(stub.server.socket, server_side=True)
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        inner, outer = await asyncio.open_connection("127.0.0.1", stub.server.server_port)
        await asyncio.gather(copied(reader, outer), copied(inner, writer))

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:secret@127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "tools.example" if exempt else "other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    _tls_context.cache_clear()
    url = "https://tools.example:8443/mcp"
    async with configured(stub, url=url, connect_timeout=20) as (_, server):
        if exempt:
            with pytest.raises(ServerFailure, match="no connection could be made"):
                await server.tools()
            assert not asked
        else:
            assert await call(server, "pay") == ("pay in session-1", False)
            assert asked[0].startswith(b"CONNECT tools.example:8443 HTTP/1.1\r\n")
            assert b"Basic " + base64.b64encode(b"ada:secret") in asked[0]
    _tls_context.cache_clear()
    proxy.close()


async def test_a_proxy_that_cannot_be_used_stops_the_start(
    stub: SessionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY is not an address"):
        async with configured(stub, url="https://tools.example/mcp"):
            pass


async def test_servers_that_a_request_names_are_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would connect to addresses that nobody has checked."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    remote = RemoteServersConfig(
        enabled=True, allow_hosts=["*"], allow_private=True, connect_timeout=2
    )
    async with McpServers(McpConfig(remote=remote)) as servers:
        entry = McpTool(server_label="far", server_url="https://127.0.0.1:1/mcp")
        with pytest.raises(ServerFailure):
            await servers.check(SessionContext(entry=entry)).tools()
    assert not asked
    listening.close()
