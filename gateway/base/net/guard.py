"""The hosts and addresses that a request can make the gateway connect to."""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from gateway.base.net.names import look_up

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name and a port to addresses. Raises `OSError`."""

_IPV4_AT_THE_END: Final = (
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated, RFC 2765
)
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
"""Private NAT64, RFC 8215."""
_PLACES_IN_NAT64: Final = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
"""Positions of the IPv4 address's bytes after a prefix of 48, 56, 64 and 96 bits (RFC 6052)."""
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
"""Addresses of the clouds' metadata services, which give out credentials. By their networks, some would be private and
some public."""

_KINDS: Final = tuple(
    (kind, tuple(map(ip_network, networks.split())))
    for kind, networks in (
        ("unspecified", "0.0.0.0 ::"),
        ("loopback", "127.0.0.0/8 ::1"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        # Including the networks for benchmarks (RFC 2544), from which some proxies assign addresses to names.
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15 fc00::/7 fec0::/10"),
        # "This network", carriers' NAT, protocols, documentation, 6to4 relays, class E.
        (
            "reserved",
            "0.0.0.0/8 100.64.0.0/10 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 "
            # Protocols, documentation.
            "2001::/23 2001:db8::/32 3fff::/20",
        ),
    )
)
"""The networks that are not public, by category. They are from IANA's registries of special-purpose addresses, and not
from `ipaddress`, which differs between versions of Python."""
_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
"""The network of all public IPv6 addresses. Addresses outside are reserved."""


_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)
"""A host name in the form that `ascii_host` returns."""


class AddressRefused(Exception):
    """A host has an address that must not be connected to. The message names the category, not the address."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of a host, from the system's resolver. Raises `OSError`."""
    return await look_up(host, port)


def ascii_host(host: str) -> str:
    """Normalize a host for comparisons: lower case, ASCII (`xn--…`), without a final dot, and IPv4 addresses with four
    numbers (`127.0.0.1` for `127.1` and `::ffff:127.0.0.1`). Empty if `host` cannot be a host.
    """
    name = _ascii_name(host)
    try:
        return str(_read(name if ":" in name else socket.inet_ntoa(socket.inet_aton(name))))
    except (OSError, ValueError):
        return name


def _ascii_name(name: str) -> str:
    if not name.isascii():
        import httpx2  # optional, and present wherever URLs are fetched

        try:
            # The encoding that `httpx2` uses for the hosts of URLs: IDNA 2008, unlike Python's codec.
            name = httpx2.URL(scheme="http", host=name).raw_host.decode("ascii")
        except (httpx2.InvalidURL, ValueError):
            return ""
    return name.rstrip(".").lower()


def refusal(text: str, *, allow_private: bool) -> str | None:
    """The block category of an address, or None if it is allowed.

    An IPv6 address that embeds an IPv4 address (mapped, 6to4, Teredo, NAT64) has the categories of both. Link-local
    addresses and addresses of metadata services, which give out credentials, are blocked even if private addresses are
    allowed.
    """
    address = _read(text)
    for inner in (address, *_embedded(address)):
        kind = _kind(inner)
        if kind is not None and not (allow_private and kind in ("loopback", "private")):
            return kind
    return None


def is_private(text: str) -> bool:
    """Whether an address belongs to this machine or a private network."""
    return _kind(_read(text)) in ("loopback", "private")


def _read(text: str) -> IPv4Address | IPv6Address:
    """Parse an address, and drop its scope. Returns the IPv4 address for an IPv6 address that maps one, because the
    connection is made to the IPv4 address."""
    address = ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if any(address in network for network in _METADATA):
        return "link-local" if address.is_link_local else "metadata"
    if _embedded(address):
        return None  # the embedded address decides
    for kind, networks in _KINDS:
        if any(address in network for network in networks):
            return kind
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return "reserved"
    return None


def _embedded(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _IPV4_AT_THE_END):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _LOCAL_NAT64:
        # The length of the operator's prefix is unknown, so all are tried. With a wrong one, the result may look
        # reserved.
        read = (IPv4Address(bytes(address.packed[at] for at in places)) for places in _PLACES_IN_NAT64)  # fmt: skip
        found += [each for each in read if _kind(each) not in ("unspecified", "reserved")]
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
        deny_hosts: Sequence[str] = (),
        allow_private: bool = False,
        allow_plain: bool = False,
        resolve: Resolve = resolve,
    ) -> None:
        """`allow_hosts` are patterns: `example.com`, `*.example.com`, `example.com:8443`, or `*` for every host.

        `deny_hosts` are patterns too, and take precedence over `allow_hosts`. A pattern that is an address also denies
        the names that resolve to it.

        `allow_private`: also allow addresses of this machine and of private networks. `allow_plain`: also allow public
        addresses without TLS. Private addresses, if allowed, never need TLS.
        """
        self._allow_hosts = tuple(map(_read_pattern, allow_hosts))
        self._deny_hosts = tuple(map(_read_pattern, deny_hosts))
        self._allow_private = allow_private
        self._allow_plain = allow_plain
        self._resolve = resolve

    def allows_host(self, host: str, port: int) -> bool:
        """Whether the allow-list contains the host, and the deny-list does not."""
        name = ascii_host(host)
        return (
            bool(name)
            and any(pattern.matches(name, port) for pattern in self._allow_hosts)
            and not self._denies(name, port)
        )

    def _denies(self, name: str, port: int) -> bool:
        return any(pattern.matches(name, port) for pattern in self._deny_hosts)

    async def addresses(self, scheme: str, host: str, port: int) -> Sequence[str]:
        """The addresses to connect to. All addresses of the host must be allowed.

        Raises `AddressRefused`, or `OSError` if the name cannot be resolved.
        """
        if not self.allows_host(host, port):
            raise AddressRefused("its host is not on this server's list")
        if not host.isascii():
            host = ascii_host(host)  # the form in which it is checked
        found = await self._resolve(host, port)
        for address in found:
            kind = refusal(address, allow_private=self._allow_private)
            if kind is not None:
                raise AddressRefused(f"its host has a {kind} address, which is not connected to")
            if scheme != "https" and not self._allow_plain and not is_private(address):
                raise AddressRefused("without TLS (https) only private addresses are connected to")
            read = _read(address)
            if any(self._denies(str(each), port) for each in (read, *_embedded(read))):
                raise AddressRefused("its host is not on this server's list")
        if not found:
            raise OSError("the host has no address")
        return found

    async def check_addresses(self, url: str) -> None:
        """Check the addresses of a URL's host. Raises the same errors as `addresses`."""
        parts = urlsplit(url)
        await self.addresses(parts.scheme, parts.hostname or "", port_of(parts))


def port_of(parts: SplitResult) -> int:
    """The port of an http(s) URL. Raises `ValueError` if it is invalid."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def check_host_patterns(patterns: Sequence[str], key: str) -> None:
    """Check patterns for a `HostGuard`. Raises `ValueError`, naming the configuration's `key`, if one of them cannot
    match any host."""
    for pattern in patterns:
        name = _read_pattern(pattern).name
        if name and not _NAME.fullmatch(name.removeprefix(".")) and not _is_address(name):
            raise ValueError(
                f"{key}: {pattern!r} is not a host. Write a name or an address, '*.' and a name, or '*' for every host, without "
                "scheme and path."
            )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class _Pattern(NamedTuple):
    """A pattern of hosts. `host` is a host name; with a leading dot, it matches the names below; empty, it matches
    every host."""

    name: str
    port: int | None

    def matches(self, host: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.name.startswith("."):
            return host.endswith(self.name)
        return not self.name or host == self.name


def _read_pattern(pattern: str) -> _Pattern:
    name, colon, only = pattern.rpartition(":")
    port = None
    if colon and only.isdecimal() and (":" not in name or name.endswith("]")):
        pattern, port = name, int(only)
    if pattern == "*":
        return _Pattern("", port)
    if pattern.startswith("*."):
        return _Pattern(f".{_ascii_name(pattern[2:])}", port)
    # A pattern that cannot be a host becomes ".", which matches no host.
    return _Pattern(ascii_host(pattern.removeprefix("[").removesuffix("]")) or ".", port)
