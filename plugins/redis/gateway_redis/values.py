"""Shared values in Redis."""

from __future__ import annotations

from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import RedisServer

_MAX_VALUES = 100_000
"""Maximum number of values per owner."""
_MAX_BYTES = 64 << 20
"""Maximum size of one owner's values together, in bytes. Values of up to `_SMALL` bytes are limited by their number
only."""
_SMALL = 1024


class ValueTable:
    """The `SharedValues` part of the store."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def compare_and_set(
        self, name: str, value: bytes, expected: bytes | None, seconds: float, owner: str | None
    ) -> bytes | None:
        held: bytes | None = await self._server.run(
            scripts.VALUE,
            self._keys.values(name, owner),
            [
                name,
                value,
                expected or b"",
                max(1, round(seconds * 1000)),
                _MAX_VALUES,
                _MAX_BYTES,
                _SMALL,
            ],
        )
        return held

    async def get(self, name: str, owner: str | None) -> bytes | None:
        held: bytes | None = await self._server.command("GET", self._keys.values(name, owner)[0])
        return held
