"""Discovers replicas from a fixed list, a host name or a file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from gateway.sdk import ConfigurationError
from gateway_remote.config import PoolConfig
from gateway_remote.replica import Endpoint, endpoint, endpoint_at


class ReplicaSource(Protocol):
    """A source of replicas."""

    async def find(self) -> Sequence[Endpoint]:
        """The current replicas. Raises `DiscoveryError` if they cannot be determined."""
        ...


class DiscoveryError(Exception):
    """A source is unavailable; its last result stays in effect."""


class FixedReplicas:
    """A fixed list."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._endpoints = [endpoint(url) for url in urls]

    async def find(self) -> Sequence[Endpoint]:
        return self._endpoints


class DnsReplicas:
    """All addresses of a host name, such as a headless Kubernetes service; see `addresses_of_replicas`."""

    def __init__(self, url: str) -> None:
        self._name = endpoint(url)
        parts = urlsplit(self._name.url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)

    async def find(self) -> Sequence[Endpoint]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise DiscoveryError(f"{self._host} cannot be resolved: {error.strerror}") from error
        return [endpoint_at(self._name, address) for address in addresses_of_replicas(found)]


def addresses_of_replicas(found: Sequence[Any]) -> list[str]:
    """One address of each replica, from what `getaddrinfo` has found.

    A server with both an IPv4 and an IPv6 address is one replica, and nothing tells which two belong together: the addresses of
    one family are used, of that which has more; IPv4 if both have as many.
    """
    families: dict[int, set[str]] = {}
    for family, *_, address in found:
        families.setdefault(family, set()).add(str(address[0]))
    chosen = max(
        families, key=lambda each: (len(families[each]), each == socket.AF_INET), default=None
    )
    return [] if chosen is None else sorted(families[chosen])


class FileReplicas:
    """The lines of a file. An empty file is treated as one that is being written."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()

    async def find(self) -> Sequence[Endpoint]:
        try:
            text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
            lines = (line.partition("#")[0].strip() for line in text.splitlines())
            found = [endpoint(line) for line in lines if line]
        except OSError as error:
            raise DiscoveryError(f"{self._path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise DiscoveryError(f"{self._path}: {error}") from error
        if not found:
            raise DiscoveryError(f"{self._path} names no replica")
        return found


class Discovery:
    """All sources combined. The last result of an unavailable source stays in effect."""

    def __init__(self, sources: Sequence[ReplicaSource]) -> None:
        self._sources = sources
        self._last: dict[int, Sequence[Endpoint]] = {}
        self.problems: list[str] = []
        """Errors of the last lookup."""

    @property
    def changes(self) -> bool:
        """Whether another lookup can give a different result."""
        return any(not isinstance(source, FixedReplicas) for source in self._sources)

    async def find(self) -> list[Endpoint]:
        """All current replicas."""
        self.problems = []
        for place, source in enumerate(self._sources):
            try:
                self._last[place] = await source.find()
            except DiscoveryError as error:
                self.problems.append(str(error))
        return list(dict.fromkeys(each for found in self._last.values() for each in found))


def discovery(config: PoolConfig, path: str | None) -> Discovery:
    """The sources that the configuration names. Raises `ConfigurationError` for invalid addresses, or if there are
    none."""
    urls = [*config.urls, *([path] if is_address(path) and path else [])]
    sources: list[ReplicaSource] = []
    try:
        if urls:
            sources.append(FixedReplicas(urls))
        if config.dns is not None:
            sources.append(DnsReplicas(config.dns))
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    if config.file is not None:
        sources.append(FileReplicas(config.file))
    if not sources:
        raise ConfigurationError(
            'The engine "remote" needs the addresses of its engines: set urls = ["http://host:8000"], dns or file.'
        )
    return Discovery(sources)


def is_address(path: str | None) -> bool:
    """Whether a model's path is the address of its engine."""
    return path is not None and path.startswith(("http://", "https://"))
