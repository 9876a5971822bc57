"""Which hosts and addresses a request may make the gateway connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host's name and a port to its addresses. Raises `OSError`."""

_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(Exception):
    """A host has an address that must not be connected to; the message says of which kind, and not which."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of a host, by the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def refusal(text: str, *, allow_private: bool) -> str | None:
    """Of which refused kind an address is, or None where it may be connected to.

    An IPv6 address that stands for an IPv4 address (mapped, 6to4, Teredo, NAT64) is judged as both. Link-local addresses,
    where clouds keep their machines' credentials, are refused even where private ones are allowed.
    """
    address = ip_address(text.partition("%")[0])
    for inner in (address, *_embedded(address)):
        kind = _kind(inner)
        if kind is not None and not (allow_private and kind in ("loopback", "private")):
            return kind
    return None


def is_private(text: str) -> bool:
    """Whether an address is of this machine or of a private network."""
    return _kind(ip_address(text.partition("%")[0])) in ("loopback", "private")


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, IPv6Address) and address.is_site_local:
        return "private"
    if address.is_reserved and not _embedded(address):
        return "reserved"
    if address.is_private and not _embedded(address):
        return "private"
    if not address.is_global and not _embedded(address):
        return "reserved"
    return None


def _embedded(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 == 0 and int(address) > 1:
        found.append(
            IPv4Address(int(address))
        )  # IPv4-compatible, long deprecated, still routed by some
    return [each for each in found if each is not None]


class HostGuard:
    """Which hosts may be connected to, by name and by address."""

    def __init__(
        self,
        allow_hosts: Sequence[str],
        *,
        allow_private: bool = False,
        allow_plain: bool = False,
        resolve: Resolve = resolve,
    ) -> None:
        """`allow_hosts` are patterns: `example.com`, `*.example.com`, `example.com:8443`, or `*` for every host.

        `allow_private`: also addresses of this machine and of private networks. `allow_plain`: public addresses without TLS
        too; private ones, where they are allowed, are reached without it in any case.
        """
        self._allow_hosts = allow_hosts
        self._allow_private = allow_private
        self._allow_plain = allow_plain
        self._resolve = resolve

    def allows_host(self, host: str, port: int) -> bool:
        """Whether the allow-list has the host."""
        host = host.rstrip(".").lower()
        return any(_matches(pattern.lower(), host, port) for pattern in self._allow_hosts)

    async def addresses(self, scheme: str, host: str, port: int) -> Sequence[str]:
        """The addresses to connect to, each of them allowed. One refused address refuses the host.

        Raises `AddressRefused`, or `OSError` where the name cannot be resolved.
        """
        if not self.allows_host(host, port):
            raise AddressRefused("its host is not on this server's list")
        found = await self._resolve(host, port)
        for address in found:
            kind = refusal(address, allow_private=self._allow_private)
            if kind is not None:
                raise AddressRefused(f"its host has a {kind} address, which is not connected to")
            if scheme != "https" and not self._allow_plain and not is_private(address):
                raise AddressRefused("without TLS (https) only private addresses are connected to")
        if not found:
            raise OSError("the host has no address")
        return found

    async def check_addresses(self, url: str) -> None:
        """`addresses` of a URL, for its refusal alone."""
        parts = urlsplit(url)
        await self.addresses(parts.scheme, parts.hostname or "", port_of(parts))


def port_of(parts: SplitResult) -> int:
    """The port that an http(s) URL means. Raises `ValueError` where it says none that there is."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def _matches(pattern: str, host: str, port: int) -> bool:
    name, colon, only = pattern.rpartition(":")
    if colon and only.isdigit() and (":" not in name or name.endswith("]")):
        if int(only) != port:
            return False
        pattern = name
    pattern = pattern.removeprefix("[").removesuffix("]")
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern
