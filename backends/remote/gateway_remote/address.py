"""Splits an endpoint into what a connection needs."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_remote.replica import Endpoint


class Address(Struct, frozen=True):
    """Socket address, TLS name, Host header and path prefix of an endpoint."""

    host: str
    port: int
    tls: bool
    name: str
    """Host name that the certificate must match."""
    header: str
    """Value of the Host header."""
    prefix: str
    """Prefix of all request paths."""


@lru_cache(maxsize=4096)
def address_of(where: Endpoint) -> Address:
    """The address of an endpoint."""
    parts = urlsplit(where.url)
    tls = parts.scheme == "https"
    header = where.host or parts.netloc
    return Address(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        tls=tls,
        name=urlsplit(f"//{header}").hostname or "",
        header=header,
        prefix=parts.path,
    )
