"""Connections whose commands are packed by hiredis. redis-py's own packing costs a microsecond per argument."""

from __future__ import annotations

from typing import Any

import hiredis
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection


class _Packing:
    def pack_command(self, *arguments: Any) -> list[bytes]:
        """A command as bytes. The first argument may consist of two words."""
        name, *others = arguments
        words = name.split() if isinstance(name, str) else [name]
        return [hiredis.pack_command((*words, *others))]


class TcpConnection(_Packing, Connection):
    """Over TCP."""


class TlsConnection(_Packing, SSLConnection):
    """Over TLS."""


class UnixConnection(_Packing, UnixDomainSocketConnection):
    """Over a Unix socket."""


class SentinelConnection(_Packing, SentinelManagedConnection):
    """Over TCP, to the address given by the sentinels."""


class SentinelTlsConnection(_Packing, SentinelManagedSSLConnection):
    """Over TLS, to the address given by the sentinels."""


PACKING: dict[type, type] = {
    Connection: TcpConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: UnixConnection,
}
"""Replacements of redis-py's connection classes."""
