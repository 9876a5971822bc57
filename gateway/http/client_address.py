"""The address of a request's client, for the request log."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final

from gateway.config import TrustedProxies

UNIX: Final = "unix"
"""Stands for the address of a client that is connected to the Unix socket."""
CLIENT_ADDRESS: Final = "gateway_client_address"
"""The scope key of a WebSocket client's address. Absent if addresses are not logged."""
_MOST_HOPS: Final = 32
"""Maximum number of proxies whose entries in `X-Forwarded-For` are read."""


class ClientAddress:
    """Finds the addresses of clients, including clients behind trusted proxies."""

    def __init__(self, trusted: TrustedProxies) -> None:
        self._trusted = trusted

    def of(self, scope: Any) -> str:
        """The address of an ASGI scope's client, or `unix`.

        If a trusted proxy sent the request, this is the last address in `X-Forwarded-For` that is not a trusted proxy.
        Earlier entries are ignored, because the client can forge them. Entries that are not addresses are ignored.
        """
        client = scope.get("client")
        found = UNIX if client is None else _plain(client[0]) or client[0]
        if not self._trusted.allow(found):
            return str(found)
        for hop in islice(_hops(scope["headers"]), _MOST_HOPS):
            address = _plain(hop)
            if address is None:
                break
            found = address
            if not self._trusted.allow(found):
                break
        return found


def _hops(headers: Sequence[tuple[bytes, bytes]]) -> Any:
    """The entries of all `X-Forwarded-For` headers, last first."""
    for name, value in reversed(headers):
        if name == b"x-forwarded-for":
            yield from reversed(value.decode("latin-1").split(","))


def _plain(written: str) -> str | None:
    """An address without its port and zone. An IPv4 address written as IPv6 is returned as IPv4. None if `written` is
    not an address."""
    text = written.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)
