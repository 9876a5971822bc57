"""Usage per owner: enforces the bounds on number and bytes, and chooses the owner to evict from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Literal, TypeAlias

from redis.exceptions import ResponseError

from gateway.sdk import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.config import RedisConfig
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

logger = logging.getLogger("gateway_redis")

Kind: TypeAlias = Literal["r", "c", "v", "p"]
"""Responses, chat completions, conversations; large parts, as far as they are not counted with a response."""
Evict: TypeAlias = Callable[[str, bytes], Awaitable[object]]
"""Removes one entry, given its name and its owner as stored."""
_Change: TypeAlias = tuple[Literal["put", "keep", "drop"], Kind, str, bytes, int, str | None]

_AT_ONCE = 200
_EVICTED_AT_ONCE = 16


class Ledger:
    """Records in the background what was stored and removed; evicts entries beyond the bounds.

    Evicts the oldest entries of the owner with the highest usage, so an owner within an equal share loses nothing
    to others. Running responses are not recorded yet.
    """

    def __init__(
        self, server: RedisServer, keys: Keys, config: RedisConfig, max_bytes: int
    ) -> None:
        self._server = server
        self._key = keys.ledger
        self._bounds: list[Argument] = [
            config.max_responses,
            config.max_completions,
            config.max_conversations,
            max_bytes,
            int(config.ttl) + 1,
        ]
        self._evict: dict[str, Evict] = {}
        self._changes: list[_Change] = []
        self._task: asyncio.Task[None] | None = None

    def evicts(self, kind: Kind, evict: Evict) -> None:
        """Register `evict` as the function that removes entries of a kind."""
        self._evict[kind] = evict

    def put(
        self, kind: Kind, name: str, owner: bytes, size: int, *, log: str | None = None
    ) -> None:
        """Record an entry as the newest, with its size in bytes. `log` is the key of an event log that is counted as
        well."""
        self._note(("put", kind, name, owner, size, log))

    def keep(self, kind: Kind, name: str, owner: bytes, size: int) -> None:
        """Record what remains of a removed entry because other entries need it."""
        self._note(("keep", kind, name, owner, size, None))

    def drop(self, kind: Kind, name: str) -> None:
        """Record that an entry was removed."""
        self._note(("drop", kind, name, b"", 0, None))

    async def close(self) -> None:
        """Wait until everything is recorded."""
        if self._task is not None:
            await self._task

    def _note(self, change: _Change) -> None:
        self._changes.append(change)
        if self._task is None:
            # In a context of its own: it records the entries of all owners.
            self._task = asyncio.create_task(self._work(), context=Context())

    async def _work(self) -> None:
        try:
            more = False
            while self._changes or more:
                some, self._changes = self._changes[:_AT_ONCE], self._changes[_AT_ONCE:]
                logs = await asyncio.gather(*(self._size_of(change[5]) for change in some))
                arguments = list(self._bounds)
                for (change, kind, name, owner, size, _), log in zip(some, logs, strict=True):
                    arguments += (change, kind, name, owner, size + log)
                out = await self._server.run(scripts.LEDGER, [self._key], arguments)
                more = bool(out)
                gone = list(zip(out[::3], out[1::3], out[2::3], strict=True))
                for start in range(0, len(gone), _EVICTED_AT_ONCE):
                    await asyncio.gather(
                        *(
                            self._evict[kind.decode()](name.decode(), owner)
                            for kind, name, owner in gone[start : start + _EVICTED_AT_ONCE]
                        )
                    )
        except StoreUnavailable as error:
            # Entries that were not recorded are removed by their expiry alone.
            logger.warning("what was stored could not be counted: %s", error.message)
        finally:
            self._task = None

    async def _size_of(self, key: str | None) -> int:
        """Memory used by a log, in bytes."""
        if key is None:
            return 0
        try:
            return await self._server.command("MEMORY USAGE", key) or 0
        except ResponseError:  # a server with Redis' protocol that lacks this command
            return 0
