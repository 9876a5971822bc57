"""The gateway's HTTP client: `httpx2` with limits on what servers send, and with checks of the addresses that are
connected to.

All HTTP requests are made with a client of `http_client`, or with `fetched` for one file at a URL from users or models.
The exceptions are in `docs/decisions/http_client.md`, with reasons. Plugins that import this module must depend on
`httpx2`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Literal

import httpx2

from gateway.base.net.guard import HostGuard
from gateway.base.net.http_transport import HttpTransport
from gateway.base.net.proxies import Proxy
from gateway.base.net.transports import (
    Compressed,
    GuardedTransport,
    HostRefused,
    LimitedTransport,
    TooLarge,
)

__all__ = ["FetchFailure", "TooLarge", "fetched", "http_client"]


def http_client(
    *,
    max_bytes: int | None,
    guard: HostGuard | None = None,
    proxy: Proxy | None = None,
    tls: ssl.SSLContext | None = None,
    headers: Mapping[str, str] = {},
    connect_timeout: float | None = None,
    event_streams: bool = False,
    wrap: Callable[[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport] | None = None,
) -> httpx2.AsyncClient:
    """A client for HTTP/1.1 with persistent connections. It follows no redirects and does not read the environment.

    The head of an answer, including interim answers (1xx), is limited to 64 KiB, and the body to `max_bytes`; reading a
    larger body raises `TooLarge`. The client does not request compression, and refuses compressed bodies. Callers limit
    the time (`asyncio.timeout`).

    Args:
        max_bytes: Maximum size of each body. None: the caller limits its reading.
        guard: Decides which hosts and addresses may be connected to, for each request. A name is resolved once, and the
            connection is made to the address that was checked. Refusals are raised as `httpx2.ConnectError`.
        proxy: Proxy for all connections (see `proxy_for`). Not allowed with a guard, whose checks it would bypass.
        tls: Context that verifies certificates. Default: `web_tls_context()`.
        headers: Headers of each request.
        connect_timeout: Seconds for connecting, and for each write. Default: no limit.
        event_streams: Bodies that are declared as event streams have no limit; the caller must limit each event.
        wrap: Wraps the client's transport in a transport of the caller.
    """
    if guard is not None and proxy is not None:
        raise ValueError("a proxy would connect to addresses that the guard has not checked")
    transport: httpx2.AsyncBaseTransport = HttpTransport(tls, proxy)
    if guard is not None:
        transport = GuardedTransport(transport, guard)
    transport = LimitedTransport(transport, max_bytes, event_streams=event_streams)
    return httpx2.AsyncClient(
        transport=transport if wrap is None else wrap(transport),
        headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(connect_timeout, read=None),
        follow_redirects=False,
        trust_env=False,
    )


class FetchFailure(Exception):
    """Raised by `fetched`. The message is a phrase with the reason; `kind` is the reason for programs."""

    def __init__(
        self,
        message: str,
        kind: Literal["refused", "timeout", "redirects", "compressed", "too_large", "connection"],
    ) -> None:
        super().__init__(message)
        self.kind = kind


@asynccontextmanager
async def fetched(
    url: str,
    *,
    guard: HostGuard,
    check: Callable[[str], None],
    headers: Mapping[str, str],
    max_bytes: int | None,
    max_redirects: int,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[httpx2.Response]:
    """The answer to a GET of `url`, after redirects. The body must be read within the context.

    Each fetch has its own connections and no cookies, so that fetches share no state. Bodies of redirects are not read.

    Args:
        guard: See `http_client`.
        check: Called with `url` and with each redirect's URL before the request. Raises if the URL is not allowed.
        headers: All headers except `Host`.
        max_bytes: See `http_client`.
        max_redirects: Maximum number of redirects that are followed.
        seconds: Time limit for the whole fetch, including reading the body.
        tls: See `http_client`.

    Raises:
        FetchFailure: If there is no answer, or if reading the body fails.
    """
    client = http_client(max_bytes=max_bytes, guard=guard, tls=tls, headers=headers)
    try:
        async with (
            asyncio.timeout(seconds),
            client,
            _redirected(client, url, check, max_redirects) as response,
        ):
            yield response
    except TimeoutError:
        raise FetchFailure(f"it did not arrive within {seconds:g} seconds", "timeout") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, UnicodeError) as error:
        # UnicodeError: a redirect to an impossible host name.
        raise _failure(error) from None


@asynccontextmanager
async def _redirected(
    client: httpx2.AsyncClient, url: str, check: Callable[[str], None], max_redirects: int
) -> AsyncIterator[httpx2.Response]:
    """The first answer that is not a redirect."""
    check(url)
    request = client.build_request("GET", url)
    for _ in range(max_redirects + 1):
        async with aclosing(await client.send(request, stream=True)) as response:
            if response.next_request is None:
                yield response
                return
            request = response.next_request
        check(str(request.url))
    raise FetchFailure("its URL redirects too often", "redirects")


def _failure(error: Exception) -> FetchFailure:
    match error:
        case HostRefused():
            return FetchFailure(str(error), "refused")
        case TooLarge():
            return FetchFailure(str(error), "too_large")
        case Compressed():
            return FetchFailure(
                "its server sends it compressed, though it was not asked to", "compressed"
            )
        case httpx2.ConnectError():
            return FetchFailure("no connection could be made to its host", "connection")
    return FetchFailure(f"the connection broke ({type(error).__name__})", "connection")
