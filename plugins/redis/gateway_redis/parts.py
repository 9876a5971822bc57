"""Large parts of responses, each stored once for its owner. See `gateway.sdk.stores.cut`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gateway.sdk.stores import named_parts, restore
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.ledger import Ledger
from gateway_redis.server import RedisServer

_REMEMBERED = 10_000
"""Number of parts whose expiry a process remembers."""
_ABSENT = -1
_WRITTEN = 600_000
"""Milliseconds within which a record is written whose parts were stored, beside the time of an outage."""


class Uses(NamedTuple):
    """What a record notes about its parts, in its field `x`."""

    token: str
    """Of the write that made these uses. A part is used by pairs of a response and a token."""
    charged: int
    """Bytes of the parts that are counted with this record: a part is counted with one of those that use it."""
    names: Sequence[str]

    def packed(self) -> str:
        return " ".join((self.token, str(self.charged), *self.names))

    @classmethod
    def unpacked(cls, packed: bytes) -> Uses:
        token, charged, *names = packed.decode().split(" ")
        return cls(token, int(charged), names)


class PartTable:
    """Parts expire like the responses that use them, half a lifetime later: if a process dies before it has extended the lives of
    parts with those of their responses, there is time for the next."""

    def __init__(
        self, server: RedisServer, keys: Keys, ledger: Ledger, *, ttl: int, outage: float
    ) -> None:
        """`ttl` is the lifetime of responses in milliseconds, `outage` the seconds for which a write is repeated."""
        self._server = server
        self._keys = keys
        self._ledger = ledger
        self._spare = ttl // 2 + 1000
        self._old = ttl + int(outage * 1000) + _WRITTEN
        self._lives: dict[tuple[bytes, str], float] = {}
        """Earliest expiry of each part (`time.monotonic`, ms), as far as this process has set it."""

    async def hold(
        self, owner: bytes, response_id: str, token: str, parts: Mapping[str, bytes], *, live: int
    ) -> Uses:
        """Store parts that are not stored, for the record that is written next. They live for at least `live` milliseconds."""
        charged = await asyncio.gather(
            *(
                self._hold_one(owner, response_id, token, name, data, live)
                for name, data in parts.items()
            )
        )
        return Uses(token, sum(charged), list(parts))

    async def _hold_one(
        self, owner: bytes, response_id: str, token: str, name: str, data: bytes, live: int
    ) -> int:
        keys = self._keys.part(name, owner)
        charged, was_kept, old = _ABSENT, 0, []
        for content in (b"", data):
            charged, was_kept, old = await self._server.run(
                scripts.PART_HOLD,
                keys,
                [response_id, token, content, live + self._spare, self._old],
            )
            if charged != _ABSENT:
                break
        if was_kept:
            self._ledger.drop("p", _counted(name, owner))
        for use in old:
            await self._leave_if_expired(owner, name, use.decode())
        return charged

    async def _leave_if_expired(self, owner: bytes, name: str, use: str) -> None:
        """Give up a use whose response has expired, or was written again by a process that then died."""
        response_id, _, token = use.rpartition(" ")
        noted = await self._server.command("HGET", self._keys.record(response_id), "x")
        if noted is None or Uses.unpacked(noted).token != token:
            await self.leave(owner, response_id, Uses(token, 0, [name]), gone=noted is None)

    async def leave(self, owner: bytes, response_id: str, uses: Uses, *, gone: bool) -> None:
        """Give up the uses of an earlier write; `gone`: the response was removed. Parts without uses are removed."""
        left = await asyncio.gather(
            *(
                self._server.run(
                    scripts.PART_LEAVE,
                    self._keys.part(name, owner),
                    [response_id, uses.token, int(gone)],
                )
                for name in uses.names
            )
        )
        for name, (is_removed, kept) in zip(uses.names, left, strict=True):
            if is_removed:
                self._lives.pop((owner, name), None)
                self._ledger.drop("p", _counted(name, owner))
            elif kept:
                self._ledger.keep("p", _counted(name, owner), owner, kept)

    async def touch(self, owner: bytes, names: Collection[str], live: int) -> None:
        """Extend the lives of parts to at least `live` milliseconds."""
        now, lives = time.monotonic() * 1000, self._lives
        due = [name for name in frozenset(names) if lives.get((owner, name), 0) < now + live]
        if not due:
            return
        await asyncio.gather(
            *(
                self._server.run(
                    scripts.PART_TOUCH, self._keys.part(name, owner), [live + self._spare]
                )
                for name in due
            )
        )
        if len(lives) > _REMEMBERED:
            lives.clear()
        lives.update({(owner, name): now + live + self._spare for name in due})

    async def restored(
        self, owner: bytes, values: Sequence[bytes | None]
    ) -> Sequence[bytes | None]:
        """The values as they were packed, in the same order. None if a part is missing."""
        names = sorted({name for value in values for name in named_parts(value)})
        if not names:
            return values
        found: Sequence[bytes | None] = await asyncio.gather(
            *(self._server.command("HGET", self._keys.part(name, owner)[0], "d") for name in names)
        )
        parts = {name: data for name, data in zip(names, found, strict=True) if data is not None}
        return [None if value is None else restore(value, parts) for value in values]


def _counted(name: str, owner: bytes) -> str:
    """The name of a part in the ledger."""
    return f"{name}{owner.decode()}"
