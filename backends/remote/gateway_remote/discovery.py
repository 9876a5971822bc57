"""Which replicas there are: a fixed list, the addresses of a name, the lines of a file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from gateway.errors import ConfigurationError
from gateway_remote.config import PoolConfig
from gateway_remote.replica import Endpoint, endpoint, endpoint_at


class Source(Protocol):
    """Something that knows replicas."""

    async def find(self) -> Sequence[Endpoint]:
        """The replicas as of now. Raises `DiscoveryError` where that cannot be told."""
        ...


class DiscoveryError(Exception):
    """A source cannot tell its replicas now; what it said last holds."""


class Listed:
    """A fixed list."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._endpoints = [endpoint(url) for url in urls]

    async def find(self) -> Sequence[Endpoint]:
        return self._endpoints


class Named:
    """All addresses of a host name, as of a headless service of Kubernetes."""

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
        addresses = sorted({str(address[0]) for *_, address in found})
        return [endpoint_at(self._name, address) for address in addresses]


class Written:
    """The lines of a file. An empty file is taken for one that is just being written."""

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
    """All sources together. What a source said last holds while it cannot tell."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._last: dict[int, Sequence[Endpoint]] = {}
        self.problems: list[str] = []
        """Why sources could not tell, at the last look."""

    @property
    def changes(self) -> bool:
        """Whether looking again can find something else."""
        return any(not isinstance(source, Listed) for source in self._sources)

    async def find(self) -> list[Endpoint]:
        """All replicas as of now."""
        self.problems = []
        for place, source in enumerate(self._sources):
            try:
                self._last[place] = await source.find()
            except DiscoveryError as error:
                self.problems.append(str(error))
        return list(dict.fromkeys(each for found in self._last.values() for each in found))


def discovery(config: PoolConfig, path: str | None) -> Discovery:
    """What the configuration names. Raises `ConfigurationError` for addresses that are none, and where there are none."""
    urls = [*config.urls, *([path] if is_address(path) and path else [])]
    sources: list[Source] = []
    try:
        if urls:
            sources.append(Listed(urls))
        if config.dns is not None:
            sources.append(Named(config.dns))
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    if config.file is not None:
        sources.append(Written(config.file))
    if not sources:
        raise ConfigurationError(
            'The engine "remote" needs to know where its engines are: set urls = ["http://host:8000"], dns or file.'
        )
    return Discovery(sources)


def is_address(path: str | None) -> bool:
    """Whether a model's path says where its engine is, and not what it is."""
    return path is not None and path.startswith(("http://", "https://"))
