"""`allowed_hosts` under `[server]`: the names and addresses that are accepted in a request's `Host` header."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST: Final = re.compile(
    r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?\Z", re.IGNORECASE | re.ASCII
)
_NAME: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)


def is_loopback(host: str) -> bool:
    """Whether `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # Python 3.13 examines the mapped address itself.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class TrustedProxies:
    """`trusted_proxies` under `[server]`: the proxies whose header `X-Forwarded-For` is trusted."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Entries are addresses, networks, and `unix` for clients of the Unix socket. Raises `ValueError` for other
        entries."""
        self._unix = "unix" in entries
        self._networks: list[_Network] = []
        for entry in entries:
            if entry == "unix":
                continue
            try:
                self._networks.append(ipaddress.ip_network(entry.strip("[]")))
            except ValueError:
                raise ValueError(
                    f'trusted_proxies: {entry!r} is no address and no network: write one as in "10.0.0.7" or "10.0.0.0/8", or "unix" for '
                    "the Unix socket."
                ) from None

    def allow(self, address: str) -> bool:
        """Whether the client at `address`, or `unix`, is a trusted proxy."""
        if address == "unix":
            return self._unix
        if not self._networks:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


class AllowedHosts:
    """The accepted names and addresses."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Entries are names, `*.` and a name for all its subdomains, addresses and networks. Raises `ValueError` for
        other entries."""
        self._names: set[str] = set()
        self._below: tuple[str, ...] = ()
        self._networks: list[_Network] = []
        for entry in entries:
            self._add(entry.lower())

    def _add(self, entry: str) -> None:
        with suppress(ValueError):
            self._networks.append(ipaddress.ip_network(entry.strip("[]")))
            return
        if not _NAME.fullmatch(entry):
            raise ValueError(
                f"{entry!r} is not a host: write a name, '*.' and a name, an address or a network, without scheme and port."
            )
        if entry.startswith("*."):
            self._below += (entry[1:],)
        else:
            self._names.add(entry)

    def allow(self, host: str) -> bool:
        """Whether `host`, the value of the header, is accepted. A port is ignored."""
        found = _HOST.match(host)
        if found is None:
            return False
        name = (found[1] or found[2]).lower()
        if name in self._names or name.endswith(self._below):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return any(address in network for network in self._networks)
