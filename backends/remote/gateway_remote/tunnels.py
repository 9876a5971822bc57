"""Connections through an HTTP proxy, by CONNECT (RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from gateway.sdk.http import Proxy
from gateway_remote.address import Address
from gateway_remote.connection import ReplicaConnection
from gateway_remote.happy_eyeballs import addresses_of, first_connected

_MAX_HEAD: Final = 64 * 1024


class _Tunnel(asyncio.Protocol):
    """Asks the proxy for a tunnel, and reads its answer."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.answer.done():
            return
        if b"\r\n\r\n" in self._head:
            self.answer.set_result(bytes(self._head))
        elif len(self._head) > _MAX_HEAD:
            self.answer.set_exception(OSError("the proxy sends a head without an end"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(OSError("the proxy hung up"))
            self.answer.exception()  # nobody may wait for it any more

    def close(self) -> None:
        self.transport.abort()


async def tunnelled(proxy: Proxy, address: Address, tls: ssl.SSLContext) -> ReplicaConnection:
    """A connection with TLS to `address` through `proxy`. Raises `OSError`."""
    loop = asyncio.get_running_loop()

    async def connect(host: str) -> _Tunnel:
        _, tunnel = await loop.create_connection(_Tunnel, host, proxy.port)
        return tunnel

    tunnel = await first_connected(
        await addresses_of(proxy.host, proxy.port), connect, _Tunnel.close
    )
    connected: ReplicaConnection | None = None
    try:
        connected = await _through(tunnel, proxy, address, tls)
        return connected
    finally:
        if connected is None:
            tunnel.close()


async def _through(
    tunnel: _Tunnel, proxy: Proxy, address: Address, tls: ssl.SSLContext
) -> ReplicaConnection:
    host = f"[{address.host}]" if ":" in address.host else address.host
    target = f"{host}:{address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    tunnel.transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = await tunnel.answer
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[1].startswith(b"2"):
        said = status[1][:3].decode("ascii", "replace") if len(status) > 1 else "nonsense"
        raise OSError(f"the proxy {proxy} answers {said}")
    connection = ReplicaConnection()
    transport = await asyncio.get_running_loop().start_tls(
        tunnel.transport, connection, tls, server_hostname=address.name
    )
    if transport is None:
        raise OSError(f"the proxy {proxy} hung up")
    connection.connection_made(transport)
    return connection
