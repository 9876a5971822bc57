"""Leases and requests to cancel, in Redis. Times are Redis' own, since the clocks of replicas may differ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Sequence

from gateway.sdk import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import BLOCK, Argument, RedisServer

logger = logging.getLogger("gateway_redis")

_KEPT = 10_000
"""Number of requests to cancel that are kept for slow readers."""


class LeaseTable:
    """The `Leases` part of the store, without the records."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        if response_ids:
            arguments: list[Argument] = [holder, _milliseconds(seconds), *response_ids]
            await self._server.run(scripts.LEASE, self._keys.leases, arguments)

    async def release(self, holder: str, *response_ids: str) -> None:
        await self._server.run(scripts.RELEASE, self._keys.leases, [holder, *response_ids])

    async def take(self, holder: str, *, seconds: float, limit: int) -> Sequence[str]:
        """Lease up to `limit` responses whose lease has expired to `holder`. Returns their ids."""
        arguments: list[Argument] = [holder, _milliseconds(seconds), limit]
        taken = await self._server.run(scripts.TAKE, self._keys.leases, arguments)
        return [each.decode() for each in taken]

    async def request_cancel(self, response_id: str) -> None:
        await self._server.command(
            "XADD", self._keys.cancel, "MAXLEN", "~", _KEPT, "*", "id", response_id
        )

    async def cancel_requests(self) -> AsyncGenerator[str, None]:
        """Yields ids of responses to cancel. Waits while Redis is unavailable, without losing requests."""
        last = await self._server.command("XREVRANGE", self._keys.cancel, "+", "-", "COUNT", 1)
        at = last[0][0].decode() if last else "0-0"
        away = False
        while True:
            try:
                found = await self._server.wait_for_entries(
                    [(self._keys.cancel, at)], seconds=BLOCK
                )
                away = False
            except StoreUnavailable as error:
                if not away:
                    logger.warning("requests to cancel cannot be received: %s", error.message)
                away = True
                await asyncio.sleep(0.2)
                continue
            for _, entries in found:
                for entry, fields in entries:
                    at = entry.decode()
                    yield fields[1].decode()


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
