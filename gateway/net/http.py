"""HTTP transports for `httpx2` with size limits and address checks. Plugins that import this must depend on `httpx2`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from gateway.net.guard import AddressRefused, HostGuard


class TooLarge(httpx2.StreamError):
    """A body exceeds the limit."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses that the guard has checked, separately for each request, including redirects.

    The name is resolved once, and the connection is made to the resulting address, which prevents DNS rebinding. TLS
    still checks the certificate against the name.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, guard: HostGuard) -> None:
        self._inner = inner
        self._guard = guard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host = url.raw_host.decode("ascii")  # `url.host` may be another name, or raise
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._guard.addresses(url.scheme, host, port)
        except AddressRefused as error:
            raise httpx2.ConnectError(f"refused: {error}") from error
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
                return await self._inner.handle_async_request(there)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error  # nothing was sent, so try the next address
        assert failure is not None, "a host without addresses is an OSError"
        raise failure

    async def aclose(self) -> None:
        await self._inner.aclose()


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Rejects bodies above a size, and compressed bodies, whose size is unknown. Event streams are not limited; their
    reader must limit each event."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.stream.aclose()
            raise httpx2.RemoteProtocolError("a compressed body, which was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Limited(response.stream, self._max_bytes)
        return response

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
