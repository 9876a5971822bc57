"""Talking to Redis: commands, scripts, and what it means when there is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.asyncio import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import (
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from gateway.errors import StoreUnavailable
from gateway_redis.location import Client
from gateway_redis.scripts import Script

T = TypeVar("T")

Argument = str | bytes | int | float

BLOCK = 10.0
"""Seconds that a blocking read waits before it is made anew: so long may a dead connection go unnoticed."""

_AWAY = (
    "READONLY", "LOADING", "OOM", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY",
    "NOAUTH", "NOPERM", "WRONGPASS",
)  # fmt: skip
"""Beginnings of errors by which a Redis that is there says that it cannot serve now, or not us."""


class Server:
    """One Redis, or a cluster. Whatever keeps it from answering is raised as `StoreUnavailable`."""

    def __init__(
        self, client: Client, waiting: Client, *, address: str, max_connections: int
    ) -> None:
        """`waiting` is for commands that block. `address` is for messages."""
        self.cluster = isinstance(client, RedisCluster)
        self.address = address
        self._client = client
        self._waiting = waiting
        self._free = asyncio.Semaphore(max_connections)

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
        """The answer to a command."""
        with self._answering():
            async with self._free:
                return await self._client.execute_command(*arguments)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What a script returns. In a cluster, all keys are in one slot."""
        with self._answering():
            async with self._free:
                execute = self._client.execute_command
                try:
                    return await execute("EVALSHA", script.digest, len(keys), *keys, *arguments)
                except NoScriptError:
                    return await execute("EVAL", script.source, len(keys), *keys, *arguments)

    async def wait_for_entries(
        self, streams: Sequence[tuple[str, str]], *, seconds: float
    ) -> list[tuple[bytes, list[tuple[bytes, list[bytes]]]]]:
        """Entries of streams above an id each, as soon as there are any; none after `seconds`. A cluster takes one."""
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
            if isinstance(error, ResponseError) and not _is_away(error):
                raise  # a mistake of ours
            raise StoreUnavailable(
                f"The store does not answer (Redis at {self.address}: {reason_of(error)}). Retry, or send store: false."
            ) from error


def _is_away(error: ResponseError) -> bool:
    if isinstance(error, OutOfMemoryError | ReadOnlyError):
        return True
    text = str(error)
    # What a command of a script meets comes inside of a longer text.
    return any(text.startswith(word) or f": {word}" in text or f"-{word}" in text for word in _AWAY)


def reason_of(error: BaseException | None) -> str:
    """Why there is no answer, for people."""
    # After " : " redis-py shows its clients' insides.
    return str(error or "").partition(" : ")[0].rstrip(".") or "no answer"


async def through_outage(
    work: Callable[[], Awaitable[T]], *, seconds: float, every: float = 0.1
) -> T:
    """Do `work`, and again while the store is away, for `seconds` at most."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            return await work()
        except StoreUnavailable:
            if loop.time() + every >= end:
                raise
            await asyncio.sleep(every)
            every = min(every * 2, 1.0)
