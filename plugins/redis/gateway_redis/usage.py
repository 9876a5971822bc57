"""Counters of usage, in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.sdk import UsageCount
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

_KEPT: Final = 410 * 86_400
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
        by_day = sorted(counts, key=lambda each: each.day)
        for day, group in groupby(by_day, key=lambda each: each.day):
            arguments: list[Argument] = [_KEPT, _BATCH_KNOWN]
            for each in group:
                for number, name in enumerate(_NUMBERS):
                    if more := getattr(each, name):
                        field = (each.api, each.principal, each.model, number)
                        arguments += (msgspec.json.encode(field), more)
            await self._server.run(scripts.USAGE_ADD, self._keys.usage(day, batch), arguments)

    async def read(self, first_day: int, last_day: int) -> Sequence[UsageCount]:
        found: list[UsageCount] = []
        for day in range(first_day, last_day + 1):
            raw = await self._server.command("HGETALL", self._keys.usage(day, "")[0])
            sums: dict[tuple[str, str | None, str], dict[str, int]] = {}
            for field, value in raw.items():
                api, principal, model, number = msgspec.json.decode(field, type=_Field)
                sums.setdefault((api, principal, model), {})[_NUMBERS[number]] = int(value)
            found += (
                UsageCount(day=day, api=api, principal=principal, model=model, **numbers)
                for (api, principal, model), numbers in sums.items()
            )
        return found


_Field = tuple[str, str | None, str, int]
