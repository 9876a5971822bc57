"""Creates redis-py clients from a URL."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialWithJitterBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.sdk import ConfigurationError
from gateway.sdk.configuration import read_secret_file, without_credentials
from gateway_redis.config import RedisConfig
from gateway_redis.connections import PACKING, SentinelConnection, SentinelTlsConnection

Client: TypeAlias = "Redis | RedisCluster"

_RETRIES = 2
"""Number of retries by redis-py after a connection failure. All commands of the store may be sent twice. A Redis that hangs
is not asked again: the command has used up its time."""


def make_client(config: RedisConfig, *, waits: float = 0.0) -> Client:
    """An unconnected client. Its commands may take `waits` seconds longer than others. Raises `ConfigurationError`
    for an invalid URL."""
    settings: dict[str, Any] = {
        "socket_connect_timeout": config.connect_timeout,
        "socket_timeout": config.timeout + waits,
        "socket_keepalive": True,
        "protocol": 2,
        "retry": Retry(
            ExponentialWithJitterBackoff(base=0.02, cap=0.2),
            _RETRIES,
            supported_errors=(RedisConnectionError,),
        ),
    }
    if config.username is not None:
        settings["username"] = config.username
    if config.password is not None:
        settings["password"] = config.password
    if config.password_file is not None:
        settings["credential_provider"] = FileCredentials(config.password_file)
    # Clients for blocking reads need as many connections as there are reads; the connections of the others are
    # limited by the store.
    most = config.max_connections if not waits else 2**31
    try:
        client = _client(config.url, settings, most)
    except (ValueError, TypeError) as error:
        why = str(error).rstrip(".")
        raise ConfigurationError(
            f'[stores.redis] url = "{without_credentials(config.url)}" cannot be used: {why}. Write redis://host:port/db, rediss://…, '
            "unix://path, redis+sentinel://host:port,host:port/service or redis+cluster://host:port,host:port."
        ) from None
    # redis-py turns entries into dictionaries, which lose repeated fields.
    client.response_callbacks.pop("XREAD", None)
    return client


def _client(url: str, settings: dict[str, Any], most: int) -> Client:
    scheme, plus, kind = urlsplit(url).scheme.partition("+")
    if not plus:
        options: dict[str, Any] = {**parse_url(url)}
        found = options.pop("connection_class", Connection)
        if scheme == "unix":
            settings.pop("socket_keepalive")
        if issubclass(found, SSLConnection):
            options = {**_verification(options), **options}
        settings = _credentials({**options, **settings})
        pool = ConnectionPool(connection_class=PACKING[found], max_connections=most, **settings)
        return Redis(connection_pool=pool)
    if scheme not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
        raise ValueError(f"'{scheme}+{kind}' is not a supported scheme.")
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    named = {"username": unquote(user) or None, "password": unquote(password) or None}
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    settings = _credentials({**query, **{k: v for k, v in named.items() if v}, **settings})
    tls = scheme == "rediss"
    if tls:
        settings = {**_verification(settings), **settings}
    if kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in _addresses(hosts, 6379)]
        return RedisCluster(startup_nodes=nodes, ssl=tls, max_connections=most, **settings)
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("The service name is missing.")
    settings["db"] = int(db or 0)
    socket = {k: v for k, v in settings.items() if k.startswith("socket_") or k == "protocol"}
    socket["retry"] = settings["retry"]
    if tls:
        socket.update({k: v for k, v in settings.items() if k.startswith("ssl_")}, ssl=True)
    sentinel: Any = Sentinel(_addresses(hosts, 26379), sentinel_kwargs=socket)  # type: ignore[no-untyped-call]
    client: Redis = sentinel.master_for(
        service,
        max_connections=most,
        connection_class=SentinelTlsConnection if tls else SentinelConnection,
        **settings,
    )
    return client


class FileCredentials(CredentialProvider):
    """The password in a file, which is read for each connection."""

    def __init__(self, path: str) -> None:
        self.username: str | None = None
        self._path = path

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        password = await asyncio.to_thread(
            read_secret_file, self._path, "password_file under [stores.redis]"
        )
        return (password,) if self.username is None else (self.username, password)


def _credentials(settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` with either a password or a file that has it."""
    provider = settings.get("credential_provider")
    if isinstance(provider, FileCredentials):
        settings.pop("password", None)
        provider.username = settings.pop("username", None)
    return settings


def _verification(options: dict[str, Any]) -> dict[str, Any]:
    """Options that check certificates as `gateway.sdk.http.accept_private_authorities` does, unless `options` say how."""
    if "ssl_include_verify_flags" in options or "ssl_exclude_verify_flags" in options:
        return {}
    return {
        "ssl_include_verify_flags": [ssl.VERIFY_X509_PARTIAL_CHAIN],
        "ssl_exclude_verify_flags": [ssl.VERIFY_X509_STRICT],
    }


def _addresses(hosts: str, port: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for each in hosts.split(","):
        parts = urlsplit(f"//{each}")
        if not parts.hostname:
            raise ValueError("The host is missing.")
        found.append((parts.hostname, parts.port or port))
    return found
