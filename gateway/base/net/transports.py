"""Transports for `httpx2` with size limits and address checks. `gateway.base.net.http` builds clients from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from gateway.base.net.guard import AddressRefused, HostGuard

_CHUNKS_IN_A_ROW: Final = 64
"""Number of chunks of a body that are passed on before other tasks may run."""


class TooLarge(httpx2.StreamError):
    """A body exceeds the limit."""


class Compressed(httpx2.RemoteProtocolError):
    """A body is compressed, although the request did not accept compression."""


class HostRefused(httpx2.ConnectError):
    """The guard refuses a host. The message contains the reason."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses that the guard has checked, separately for each request, including redirects.

    The name is resolved once, and the connection is made to the resulting address, which prevents DNS rebinding. TLS
    still checks the certificate against the name.

    Bodies in many small chunks do not block the event loop.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, guard: HostGuard) -> None:
        self._inner = inner
        self._guard = guard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host = url.raw_host.decode("ascii")  # `url.host` may differ, or raise an error
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._guard.addresses(url.scheme, host, port)
        except AddressRefused as error:
            raise HostRefused(str(error)) from error
        except OSError as error:
            raise httpx2.ConnectError("the host's name cannot be resolved") from error
        failure: httpx2.TransportError | None = None
        for address in addresses:
            there = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                response = await self._inner.handle_async_request(there)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error  # nothing was sent, so the next address can be tried
                continue
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Paced(response.stream)
            return response
        assert failure is not None, "a host without addresses is an OSError"
        raise failure

    async def aclose(self) -> None:
        await self._inner.aclose()


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Rejects bodies above a size, and compressed bodies, whose decompressed size is unknown. Bodies are only checked
    when they are read."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        max_bytes: int | None,
        *,
        event_streams: bool = False,
    ) -> None:
        """`max_bytes`: maximum size; None if the reader limits its reading. `event_streams`: whether bodies that are
        declared as event streams are not limited. Their reader must limit each event."""
        self._inner = inner
        self._max_bytes = max_bytes
        self._event_streams = event_streams

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        encoding = response.headers.get("content-encoding", "identity").lower()
        kind = response.headers.get("content-type", "").lower()
        unlimited = self._event_streams and kind.startswith("text/event-stream")
        if encoding != "identity":
            response.stream = _Refused(response.stream)
        elif self._max_bytes is not None and not unlimited:
            response.stream = _Limited(response.stream, self._max_bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Refused(httpx2.AsyncByteStream):
    """A compressed body. Reading it raises `Compressed`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise Compressed("a compressed body, which was not asked for")
        yield b""  # makes this a generator

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._left = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge("The server's answer is larger than this gateway takes.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Paced(httpx2.AsyncByteStream):
    """A body that lets other tasks run between its chunks. One read from the network can contain thousands of
    chunks."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _CHUNKS_IN_A_ROW
        async for chunk in self._inner:
            left -= 1
            if not left:
                left = _CHUNKS_IN_A_ROW
                await asyncio.sleep(0)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
