"""HTTP as it is spoken to MCP servers: within limits, and for remote ones to checked addresses only."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from gateway.net.guard import HostGuard
from gateway.net.http import GuardedTransport, LimitedTransport


def http_client(
    headers: Mapping[str, str],
    *,
    connect_timeout: float,
    max_message_bytes: int,
    guard: HostGuard | None = None,
) -> httpx2.AsyncClient:
    """A client for one MCP server. With a `guard`, proxies of the environment are passed by: they would connect for us.

    Reading has no time limit of its own, as servers keep streams open: calls have one.
    """
    transport: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(trust_env=guard is None)
    if guard is not None:
        transport = GuardedTransport(transport, guard)
    return httpx2.AsyncClient(
        transport=LimitedTransport(transport, max_message_bytes),
        headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(connect_timeout, read=None),
        follow_redirects=False,
        trust_env=False,
    )
