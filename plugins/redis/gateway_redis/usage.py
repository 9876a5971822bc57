"""Counters of usage, in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.sdk import UsageCount, UsageWidth
from gateway.sdk.stores import BUCKETS_KEPT, WIDTH_SECONDS
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

_MARGIN: Final = 600_000
"""Seconds by which sums are kept longer than they have to be."""
_READ_AT_ONCE: Final = 16
_BATCH_KNOWN: Final = 3700
_NUMBERS: Final = (
    "requests",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
)


class UsageCounterTable:
    """The `UsageCounters` part of the store."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def add(self, batch: str, counts: Sequence[UsageCount]) -> None:
        by_bucket = sorted(counts, key=_bucket)
        for (width, bucket), group in groupby(by_bucket, key=_bucket):
            kept = BUCKETS_KEPT[width] * WIDTH_SECONDS[width]
            arguments: list[Argument] = [kept + min(kept, _MARGIN), _BATCH_KNOWN]
            for each in group:
                for number, name in enumerate(_NUMBERS):
                    if more := getattr(each, name):
                        field = (each.api, each.principal, each.model, number)
                        arguments += (msgspec.json.encode(field), more)
            keys = self._keys.usage(width, bucket, batch)
            await self._server.run(scripts.USAGE_ADD, keys, arguments)

    async def read(self, first: int, last: int, width: UsageWidth) -> Sequence[UsageCount]:
        found: list[UsageCount] = []
        for begin in range(first, last + 1, _READ_AT_ONCE):
            buckets = range(begin, min(begin + _READ_AT_ONCE, last + 1))
            for each in await asyncio.gather(*(self._read(width, bucket) for bucket in buckets)):
                found += each
        return found

    async def _read(self, width: UsageWidth, bucket: int) -> Iterable[UsageCount]:
        raw = await self._server.command("HGETALL", self._keys.usage(width, bucket, "")[0])
        sums: dict[tuple[str, str | None, str], dict[str, int]] = {}
        for field, value in raw.items():
            api, principal, model, number = msgspec.json.decode(field, type=_Field)
            sums.setdefault((api, principal, model), {})[_NUMBERS[number]] = int(value)
        return [
            UsageCount(
                width=width, bucket=bucket, api=api, principal=principal, model=model, **numbers
            )
            for (api, principal, model), numbers in sums.items()
        ]


def _bucket(count: UsageCount) -> tuple[UsageWidth, int]:
    return count.width, count.bucket


_Field = tuple[str, str | None, str, int]
