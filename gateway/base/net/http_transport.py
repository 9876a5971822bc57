"""The connections of the HTTP client: HTTP/1.1, with limits on the heads of answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore2
import httpx2
from httpcore2 import SOCKET_OPTION

from gateway.base.net.proxies import Proxy
from gateway.base.net.tls import web_tls_context

MAX_HEAD_BYTES: Final = 64 * 1024
"""Maximum number of bytes of an answer before its body: the head, and the interim answers (1xx) before it."""
_HEAD_PIECE: Final = 4096
"""Maximum number of bytes of heads in one read. Parsing a larger read would block the event loop for milliseconds."""
_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)  # fmt: skip


class HttpTransport(httpx2.AsyncHTTPTransport):
    """Connects to web servers that are not trusted. An answer fails with `httpx2.RemoteProtocolError` if its head,
    including the interim answers before it, exceeds `MAX_HEAD_BYTES`."""

    def __init__(self, verify: ssl.SSLContext | None = None, proxy: Proxy | None = None) -> None:
        """`verify` is the context that verifies certificates. None: the system's authorities, or the ones that the
        environment names. `proxy` is used for all connections; see `proxy_for`."""
        context = web_tls_context() if verify is None else verify
        super().__init__(verify=context, limits=_LIMITS)
        # httpx2's own pool cannot be given a network backend.
        shared: dict[str, Any] = {
            "ssl_context": context,
            "max_connections": _LIMITS.max_connections,
            "max_keepalive_connections": _LIMITS.max_keepalive_connections,
            "keepalive_expiry": _LIMITS.keepalive_expiry,
            "network_backend": _Backend(),
        }
        if proxy is None:
            self._pool = httpcore2.AsyncConnectionPool(**shared)
        else:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            self._pool = httpcore2.AsyncHTTPProxy(
                f"http://{host}:{proxy.port}",
                proxy_headers=(
                    None
                    if proxy.authorization is None
                    else {"Proxy-Authorization": proxy.authorization}
                ),
                **shared,
            )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        stream = response.extensions.get("network_stream")
        if isinstance(stream, _Stream):
            stream.head_ended()
        return response


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # as its base
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(
            await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that limits the size of an answer's head. The head is read in small pieces."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._left: int | None = MAX_HEAD_BYTES
        """Number of bytes that may still be read before the body; None while the body is read."""

    def head_ended(self) -> None:
        self._left = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # as its base
        if self._left is None:
            return await self._inner.read(max_bytes, timeout)
        if not self._left:
            raise httpcore2.RemoteProtocolError("the head of the answer is too long")
        await asyncio.sleep(
            0
        )  # lets other tasks run: a TLS connection returns buffered data without waiting
        data = await self._inner.read(min(max_bytes, _HEAD_PIECE, self._left), timeout)
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as its base
        self._left = MAX_HEAD_BYTES  # another request
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # as its base
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
