"""Transports for each kind of server."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.sdk.http import Proxy, checked_headers, proxy_for
from gateway.sdk.net import HostGuard
from gateway_mcp.config import HttpTransport, McpServerConfig
from gateway_mcp.connection import Dial, ReportingStream
from gateway_mcp.http import mcp_client
from gateway_mcp.program_keeper import command_with_keeper
from gateway_mcp.programs import why_not_started


def configured_transport(config: McpServerConfig) -> Dial:
    """The transport for a configured server.

    Raises `ConfigurationError` if it is to be reached by a proxy that cannot be used.
    """
    if config.command:
        return lambda: _program(config)
    assert config.url is not None, "a server has a command or a url"
    return http_transport(
        config.url,
        "sse" if config.transport == "sse" else "streamable-http",
        checked_headers(config.headers),
        connect_timeout=config.connect_timeout,
        max_message_bytes=config.max_message_bytes,
        proxy=_proxy(config.url),
    )


@asynccontextmanager
async def _program(config: McpServerConfig) -> AsyncIterator[TransportStreams]:
    if why_not_started(config.command[0], config.env, config.cwd) is not None:
        raise FileNotFoundError(config.command[0])
    program, *arguments = command_with_keeper(config.command)
    parameters = StdioServerParameters(
        command=program,
        args=arguments,
        env=config.env,
        cwd=config.cwd,
        encoding_error_handler="replace",
    )
    # The program's standard error goes to that of the gateway.
    async with stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr) as streams:
        yield streams


def _proxy(url: str) -> Proxy | None:
    parts = urlsplit(url)
    return proxy_for(parts.hostname or "") if parts.scheme == "https" else None


def http_transport(
    url: str,
    transport: HttpTransport,
    headers: Mapping[str, str],
    *,
    connect_timeout: float,
    max_message_bytes: int,
    guard: HostGuard | None = None,
    proxy: Proxy | None = None,
) -> Dial:
    """The transport for a server at `url`."""

    def client(refused: Callable[[int], None] | None = None) -> httpx2.AsyncClient:
        return mcp_client(
            headers,
            connect_timeout=connect_timeout,
            max_message_bytes=max_message_bytes,
            guard=guard,
            proxy=proxy,
            refused=refused,
        )

    @asynccontextmanager
    async def streamable() -> AsyncIterator[TransportStreams]:
        async with (
            client() as http,
            streamable_http_client(
                url, http_client=http, max_sse_event_size=max_message_bytes
            ) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def sse() -> AsyncIterator[TransportStreams]:
        streams: list[ReportingStream] = []

        def refused(status: int) -> None:
            for stream in streams:
                stream.report(status)

        def sse_http(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return client(refused)

        async with sse_client(url, httpx_client_factory=sse_http) as (read, write):
            streams.append(ReportingStream(read))
            yield streams[0], write

    return sse if transport == "sse" else streamable


def likely_transports(url: str) -> tuple[HttpTransport, HttpTransport]:
    """The transports to try, in order, if a request does not name one."""
    path = urlsplit(url).path.rstrip("/")
    if re.search(r"/sse\Z", path):
        return "sse", "streamable-http"
    return "streamable-http", "sse"
