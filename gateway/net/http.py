"""The HTTP client of this gateway: `httpx2`, with limits on what servers send and checks of the addresses that are connected to.

Whatever asks a server over HTTP uses a client of `http_client`, or `fetched` for one file at a URL that users or models
name. What does not, and why, is in `docs/decisions/http_client.md`. Plugins that import this must depend on `httpx2`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Literal

import httpx2

from gateway.net.guard import HostGuard
from gateway.net.http_transport import HttpTransport
from gateway.net.proxies import Proxy
from gateway.net.transports import (
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
    """A client that speaks HTTP/1.1 over kept connections. It follows no redirects and reads nothing from the environment.

    The head of an answer, with interim answers (1xx), is limited to 64 KiB, and its body to `max_bytes`: above that,
    reading raises `TooLarge`. Compressed bodies, which are not asked for, are not read. Callers limit the time
    (`asyncio.timeout`).

    Args:
        max_bytes: Limit of each body. None: the caller stops reading by itself.
        guard: Decides which hosts and addresses may be connected to, for each request. A name is resolved once, and the
            connection is made to the address that was checked. Refusals are raised as `httpx2.ConnectError`.
        proxy: Proxy for all connections (see `proxy_for`). Not allowed with a guard, whose checks it would pass by.
        tls: Context that checks certificates. Default: `web_tls_context()`.
        headers: Headers of each request.
        connect_timeout: Seconds for connecting, and for each write. Default: no limit.
        event_streams: Bodies that are declared as event streams have no limit; the caller must limit each event.
        wrap: Adds a transport of the caller around that of the client.
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
    """`fetched` has no answer. The message is a phrase that says why; `kind` says it for programs."""

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
    """The answer to a GET of `url`, after redirects. Its body is to be read inside of the context.

    Each fetch has its own connections, and no cookies, so that fetches share no state. Bodies of redirects are not read.

    Args:
        guard: See `http_client`.
        check: Called with `url` and each URL that it redirects to, before it is asked; raises for those that are not allowed.
        headers: All headers besides `Host`.
        max_bytes: See `http_client`.
        max_redirects: How many redirects are followed.
        seconds: Time limit for all of it, reading included.
        tls: See `http_client`.

    Raises:
        FetchFailure: Also while the body is read.
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
        # UnicodeError: a redirect to a host that cannot be one.
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
