"""How each kind of server is reached."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.net.guard import HostGuard
from gateway_mcp.config import HttpTransport, ServerConfig
from gateway_mcp.connection import Dial
from gateway_mcp.http import http_client


def dial_configured(config: ServerConfig) -> Dial:
    """The transport of a configured server."""
    if config.command:
        parameters = StdioServerParameters(
            command=config.command[0],
            args=config.command[1:],
            env=config.env,
            cwd=config.cwd,
            encoding_error_handler="replace",
        )
        # What the program writes to its standard error goes where the gateway's own goes.
        return lambda: stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
    assert config.url is not None, "a server has a command or a url"
    return dial_http(
        config.url,
        "sse" if config.transport == "sse" else "streamable-http",
        config.headers,
        connect_timeout=config.connect_timeout,
        max_message_bytes=config.max_message_bytes,
    )


def dial_http(
    url: str,
    transport: HttpTransport,
    headers: Mapping[str, str],
    *,
    connect_timeout: float,
    max_message_bytes: int,
    guard: HostGuard | None = None,
) -> Dial:
    """The transport of a server that listens at `url`."""

    def client() -> httpx2.AsyncClient:
        return http_client(
            headers,
            connect_timeout=connect_timeout,
            max_message_bytes=max_message_bytes,
            guard=guard,
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

    def sse_http(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return client()

    if transport == "sse":
        return lambda: sse_client(url, httpx_client_factory=sse_http)
    return streamable


def likely_transports(url: str) -> tuple[HttpTransport, HttpTransport]:
    """Which transports to try, and in which order, where a request does not say."""
    path = urlsplit(url).path.rstrip("/")
    if re.search(r"/sse\Z", path):
        return "sse", "streamable-http"
    return "streamable-http", "sse"
