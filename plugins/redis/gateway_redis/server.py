"""Communication with Redis: commands, scripts and error handling."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import (
    ClusterError,
    ExecAbortError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from gateway.sdk import ConfigurationError, StoreUnavailable
from gateway.sdk.processes import Shares
from gateway_redis.location import Client
from gateway_redis.scripts import RIGHTS, LuaScript

logger = logging.getLogger("gateway_redis")

Argument = str | bytes | int | float

BLOCK = 10.0
"""Maximum duration of a blocking read in seconds, and so the longest time that a dead connection goes unnoticed."""

MAX_BYTES = 8 << 30
"""Maximum number of bytes stored if neither the configuration nor Redis' `maxmemory` sets a limit."""

_RENEWAL_SECONDS = 1.0

_AWAY = (
    "READONLY", "LOADING", "OOM", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY",
    "NOAUTH", "NOPERM", "WRONGPASS", "UNBLOCKED",
)  # fmt: skip
"""Prefixes of error messages of a Redis that is reachable but cannot serve now, or not this client."""
_AWAY_ERRORS = (
    ClusterError, ExecAbortError, NoPermissionError, OutOfMemoryError, ReadOnlyError, TryAgainError,
)  # fmt: skip
"""What redis-py raises for some of them. Their messages lack the prefix."""
_AWAY_PHRASES = ("The user executing the script can't", "Script killed by user")
"""Parts of messages about commands within a script that have no word of their own."""


class RedisServer:
    """One Redis, or a cluster. Raises `StoreUnavailable` if Redis does not answer, for any reason."""

    def __init__(
        self, client: Client, waiting: Client, *, address: str, max_connections: int, timeout: float
    ) -> None:
        """`waiting` is the client for blocking commands. `address` is used in messages. `timeout`: seconds that a command may
        take in all, with its retries and the wait for a connection."""
        self.cluster = isinstance(client, RedisCluster)
        self.address = address
        self._client = client
        self._waiting = waiting
        self._connections = Shares(max_connections)
        self._timeout = timeout
        self._renewed = -math.inf
        """When the connections were closed because the server had become a replica."""

    async def close(self) -> None:
        """Close all connections."""
        for client in (self._client, self._waiting):
            await client.aclose()
            if isinstance(client, RedisCluster):
                continue
            pool = client.connection_pool
            await pool.disconnect()
            if isinstance(pool, SentinelConnectionPool):
                for sentinel in pool.sentinel_manager.sentinels:
                    await sentinel.aclose()

    async def command(self, *arguments: Argument) -> Any:
        """Run a command and return the answer."""
        with self._answering():
            async with asyncio.timeout(self._timeout), self._connections.slot():
                return await self._execute(*arguments)

    async def run(
        self, script: LuaScript, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        """Run a script and return its result. In a cluster, all keys must be in one slot."""
        with self._answering():
            async with asyncio.timeout(self._timeout), self._connections.slot():
                execute = self._execute
                try:
                    return await execute("EVALSHA", script.digest, len(keys), *keys, *arguments)
                except NoScriptError:
                    return await execute("EVAL", script.source, len(keys), *keys, *arguments)

    async def _execute(self, *arguments: Argument) -> Any:
        """Run a command, and once more on new connections if the server has become a replica.

        A failover can leave the old primary running as a replica. Its connections stay open, so that only a write
        shows that the address leads to another server now.
        """
        began = self._renewed
        try:
            return await self._client.execute_command(*arguments)
        except ResponseError as error:
            if not _is_read_only(error):
                raise
            if self._renewed == began and not await self._renew_connections():
                raise
            return await self._client.execute_command(*arguments)

    async def _renew_connections(self) -> bool:
        """Have each command connect to the address again; connections in use are closed after their command. Returns whether
        it did: it does so at most once in `_RENEWAL_SECONDS`, as long as the server that answers there is a replica.

        A cluster's client finds the new primary by itself.
        """
        now = time.monotonic()
        if now - self._renewed < _RENEWAL_SECONDS or self.cluster:
            return False
        self._renewed = now
        logger.warning("Redis at %s is read-only: connecting again", self.address)
        for client in (self._client, self._waiting):
            if not isinstance(client, RedisCluster):
                with suppress(RedisError, OSError):
                    pool: Any = client.connection_pool
                    await pool.update_active_connections_for_reconnect()
                    await pool.disconnect(inuse_connections=False)
        return True

    async def wait_for_entries(
        self, streams: Sequence[tuple[str, str]], *, seconds: float
    ) -> list[tuple[bytes, list[tuple[bytes, list[bytes]]]]]:
        """Entries of streams above the given ids, as soon as there are any; an empty list after `seconds`. In a
        cluster, takes one stream only."""
        keys = [key for key, _ in streams]
        where: dict[str, Any] = {}
        with self._answering():
            if isinstance(self._waiting, RedisCluster):
                await self._waiting.initialize()
                where["target_nodes"] = self._waiting.get_node_from_key(keys[0])
            found = await self._waiting.execute_command(
                "XREAD", "BLOCK", int(seconds * 1000), "STREAMS", *keys, *(at for _, at in streams),
                **where,
            )  # fmt: skip
        return found or []

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, RedisClusterException, OSError) as error:
            if isinstance(error, ResponseError) and not _is_unavailable(error):
                raise  # a programming error
            raise StoreUnavailable(
                f"The store does not answer (Redis at {self.address}: {reason_of(error)}). Retry, or send store: false."
            ) from error


async def check_rights(server: RedisServer, prefix: str) -> None:
    """Raise `ConfigurationError` if the user may not run scripts that write keys of `prefix`, without which the store cannot work."""
    try:
        await server.run(RIGHTS, [f"{prefix}:{{rights}}"], [])
    except StoreUnavailable as error:
        reason = str(error.__cause__)
        if not any(
            word in reason for word in ("permission", "NOPERM", "can't run", "can't access")
        ):
            return  # it is busy, or loads: that passes
        raise ConfigurationError(
            f"The store 'redis' may not do what it needs at {server.address}: {reason_of(error.__cause__)}. Its user has to run scripts, and "
            f"to read and write the keys {prefix}*: ACL SETUSER … ~{prefix}* +@all -@admin -@dangerous +info."
        ) from None


async def default_max_bytes(server: RedisServer) -> int:
    """The store's default size limit in bytes: used if the configuration sets none."""
    most = 0
    if not server.cluster:
        with suppress(StoreUnavailable, ResponseError):  # the user may lack the permission
            most = (await server.command("INFO", "memory")).get("maxmemory", 0) * 3 // 5
    return most or MAX_BYTES


def _is_read_only(error: ResponseError) -> bool:
    # An error of a command within a script may be wrapped in a longer message.
    return isinstance(error, ReadOnlyError) or "READONLY" in str(error)


def _is_unavailable(error: ResponseError) -> bool:
    if isinstance(error, _AWAY_ERRORS):
        return True
    text = str(error)
    # Errors of commands within a script are wrapped in a longer message.
    return any(
        text.startswith(word) or f": {word}" in text or f"-{word}" in text for word in _AWAY
    ) or any(phrase in text for phrase in _AWAY_PHRASES)


def reason_of(error: BaseException | None) -> str:
    """The reason of a failure, for messages."""
    # After " : ", redis-py appends internals of its clients.
    return str(error or "").partition(" : ")[0].rstrip(".") or "no answer"
