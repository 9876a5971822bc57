"""The hosts and addresses that a request can make the gateway connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name and a port to addresses. Raises `OSError`."""

_IPV4_AT_THE_END = (
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    IPv6Network("64:ff9b:1::/48"),  # private NAT64, RFC 8215
    IPv6Network("::ffff:0:0:0/96"),  # translated, RFC 2765
)
_METADATA: Final = tuple(
    ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure: WireServer
        "192.0.0.192/32",  # Oracle Cloud, classic
        "100.100.100.200/32",  # Alibaba Cloud
        "169.254.0.0/16",  # most clouds: 169.254.169.254, 169.254.170.2, 169.254.42.42
        "fd00:ec2::/32",  # AWS: fd00:ec2::254, and ::23 of EKS
        "fd20:ce::254/128",  # Google Cloud
        "fd00:c1::a9fe:a9fe/128",  # Oracle Cloud
        "fd00:42::42/128",  # Scaleway
        "fd00:a9fe:a9fe::1/128",  # Akamai (Linode)
        "fd00:100::100:200/128",  # Alibaba Cloud
    )
)
"""Addresses of the clouds' metadata services, which give out credentials. Some are formally private or public
addresses."""


class AddressRefused(Exception):
    """A host has an address that must not be connected to. The message names the category, not the address."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of a host, from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def refusal(text: str, *, allow_private: bool) -> str | None:
    """The block category of an address, or None if it is allowed.

    An IPv6 address that embeds an IPv4 address (mapped, 6to4, Teredo, NAT64) is checked as both. Link-local addresses
    and those of metadata services, which give out credentials, are blocked even if private addresses are allowed.
    """
    address = ip_address(text.partition("%")[0])
    for inner in (address, *_embedded(address)):
        kind = _kind(inner)
        if kind is not None and not (allow_private and kind in ("loopback", "private")):
            return kind
    return None


def is_private(text: str) -> bool:
    """Whether an address belongs to this machine or a private network."""
    return _kind(ip_address(text.partition("%")[0])) in ("loopback", "private")


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if any(address in network for network in _METADATA):
        return "metadata"
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
    if any(address in network for network in _IPV4_AT_THE_END):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 == 0 and int(address) > 1:
        found.append(
            IPv4Address(int(address))
        )  # IPv4-compatible, deprecated, but still routed by some systems
    return [each for each in found if each is not None]


class HostGuard:
    """Restricts connections by host name and by address."""

    def __init__(
        self,
        allow_hosts: Sequence[str],
        *,
        allow_private: bool = False,
        allow_plain: bool = False,
        resolve: Resolve = resolve,
    ) -> None:
        """`allow_hosts` are patterns: `example.com`, `*.example.com`, `example.com:8443`, or `*` for every host.

        `allow_private`: also allow addresses of this machine and of private networks. `allow_plain`: also allow public
        addresses without TLS. Private addresses, if allowed, never need TLS.
        """
        self._allow_hosts = allow_hosts
        self._allow_private = allow_private
        self._allow_plain = allow_plain
        self._resolve = resolve

    def allows_host(self, host: str, port: int) -> bool:
        """Whether the allow-list contains the host."""
        host = host.rstrip(".").lower()
        return any(_matches(pattern.lower(), host, port) for pattern in self._allow_hosts)

    async def addresses(self, scheme: str, host: str, port: int) -> Sequence[str]:
        """The addresses to connect to. All of the host's addresses must be allowed.

        Raises `AddressRefused`, or `OSError` if the name cannot be resolved.
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
        """Check the addresses of a URL. Raises like `addresses`."""
        parts = urlsplit(url)
        await self.addresses(parts.scheme, parts.hostname or "", port_of(parts))


def port_of(parts: SplitResult) -> int:
    """The port of an http(s) URL. Raises `ValueError` if it is invalid."""
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
