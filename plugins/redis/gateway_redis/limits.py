"""Counters of limits, in Redis. Times are Redis' own, since the clocks of replicas may differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from gateway.sdk import LimitName, LimitState, PrincipalLimits, SettledRequest
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

_NAMES: dict[bytes, LimitName] = {
    b"requests": "requests",
    b"tokens": "tokens",
    b"day": "day",
    b"concurrent": "concurrent",
}


class LimitCounterTable:
    """The `LimitCounters` part of the store."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def admit(
        self, principal: str, request_id: str, limits: PrincipalLimits, tokens: int, seconds: float
    ) -> LimitState:
        arguments: list[Argument] = [
            request_id,
            limits.requests_per_minute or "",
            limits.tokens_per_minute or "",
            limits.tokens_per_day or "",
            limits.max_concurrent_requests or "",
            tokens,
            max(1, round(seconds * 1000)),
        ]
        keys = self._keys.limits(principal)
        answer = await self._server.run(scripts.LIMIT_ADMIT, keys, arguments)
        refused, wait, requests, spent, day = answer
        return LimitState(
            refused=_NAMES.get(refused),
            retry_after=float(wait),
            requests=float(requests),
            tokens=float(spent),
            day=int(day),
        )

    async def settle(self, ended: Sequence[SettledRequest]) -> None:
        for principal, group in groupby(
            sorted(ended, key=lambda each: each.principal), key=lambda each: each.principal
        ):
            arguments: list[Argument] = []
            for each in group:
                limit = each.limits.tokens_per_minute
                arguments += (each.request_id, limit or "", each.reserved, each.used, each.day)
            await self._server.run(scripts.LIMIT_SETTLE, self._keys.limits(principal), arguments)

    async def renew(self, running: Sequence[tuple[str, str]], seconds: float) -> None:
        milliseconds = max(1, round(seconds * 1000))
        for principal, group in groupby(sorted(running), key=lambda each: each[0]):
            requests = [request_id for _, request_id in group]
            await self._server.run(
                scripts.LIMIT_RENEW, self._keys.limits(principal)[1:], [milliseconds, *requests]
            )
