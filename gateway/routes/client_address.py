"""The address of a request's client, for the log."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final

from gateway.config import TrustedProxies

UNIX: Final = "unix"
"""The address of a client that is connected to the Unix socket."""
CLIENT_ADDRESS: Final = "gateway_client_address"
"""The key of a WebSocket's scope for the address, if it is logged."""
_MOST_HOPS: Final = 32
"""Maximum number of proxies whose entries in `X-Forwarded-For` are read."""


class ClientAddress:
    """Finds the addresses of clients, also behind trusted proxies."""

    def __init__(self, trusted: TrustedProxies) -> None:
        self._trusted = trusted

    def of(self, scope: Any) -> str:
        """The address of an ASGI scope's client, or `unix`.

        Where that is a trusted proxy, it is the last one in `X-Forwarded-For` that is not: whatever is before it is what the client
        says. What is no address there counts for nothing.
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
    """The entries of all `X-Forwarded-For`, the last first."""
    for name, value in reversed(headers):
        if name == b"x-forwarded-for":
            yield from reversed(value.decode("latin-1").split(","))


def _plain(written: str) -> str | None:
    """An address without port and zone, and that of IPv4 if it is written as one of IPv6; None for what is none."""
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
