"""HTTP clients for MCP servers: size-limited, and for remote servers restricted to checked addresses."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import cache

import httpx2

from gateway.sdk.http import Proxy, http_client, web_tls_context
from gateway.sdk.net import HostGuard
from gateway_mcp.screening import ScreenedTransport
from gateway_mcp.statuses import StatusTransport


@cache
def _tls_context(trust_env: bool) -> ssl.SSLContext:
    """Shared, because reading the system's authorities takes tens of milliseconds."""
    return web_tls_context(trust_env=trust_env)


def mcp_client(
    headers: Mapping[str, str],
    *,
    connect_timeout: float,
    max_message_bytes: int,
    guard: HostGuard | None = None,
    proxy: Proxy | None = None,
    refused: Callable[[int], None] | None = None,
) -> httpx2.AsyncClient:
    """A client for one MCP server, through `proxy` if there is one. There must be none with a `guard`: it would connect to
    unchecked addresses.

    `refused` is called with the status of each refused message. Reads have no timeout, because servers keep streams open;
    calls have one.
    """

    def screened(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncBaseTransport:
        return StatusTransport(ScreenedTransport(transport, max_message_bytes), refused)

    return http_client(
        max_bytes=max_message_bytes,
        guard=guard,
        proxy=proxy,
        tls=_tls_context(trust_env=guard is None),
        headers=headers,
        connect_timeout=connect_timeout,
        event_streams=True,
        wrap=screened,
    )
