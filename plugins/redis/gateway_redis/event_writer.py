"""Writing events: those of all responses of this process are stored in one call to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.sdk.stores import BatchEntry, EventBatchWriter, WriteTokens, through_outage
from gateway_redis import scripts
from gateway_redis.event_reader import EventReader
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

_ENDINGS: Final = {"now": "1", "later": "0", "no": ""}
"""The values that the script expects."""


class RedisEventWriter(EventBatchWriter):
    """Appends to logs; see `EventBatchWriter`."""

    max_bytes = 4 << 20  # so that Redis is not blocked for long
    max_events = 1000  # Lua's stack is limited to a few thousand values

    def __init__(
        self,
        server: RedisServer,
        keys: Keys,
        tokens: WriteTokens,
        reader: EventReader,
        *,
        outage: float,
    ) -> None:
        """`reader` is notified of all events written."""
        super().__init__()
        self._reader = reader
        self._server = server
        self._keys = keys
        self._tokens = tokens
        self._outage = outage

    async def store(self, batch: Sequence[BatchEntry]) -> Sequence[int]:
        token = self._tokens.next()
        return await through_outage(
            lambda: self._send(batch, token), seconds=self._outage, closing=self.closing
        )

    def deliver(self, entry: BatchEntry, length: int) -> None:
        self._reader.deliver(entry.response_id, entry.events, length, entry.ending == "now")

    def release(self, response_id: str) -> None:
        self._reader.release(response_id)

    async def _send(self, batch: Sequence[BatchEntry], token: str) -> Sequence[int]:
        """The resulting length of each log, or the reason why it was not extended (see the script)."""
        if not self._server.cluster:
            return await self._send_some(batch, token)
        results = await asyncio.gather(
            *(self._send_some([each], token) for each in batch), return_exceptions=True
        )
        lengths: list[int] = []
        for each in results:
            if isinstance(each, BaseException):
                raise each
            lengths += each
        return lengths

    async def _send_some(self, batch: Sequence[BatchEntry], token: str) -> Sequence[int]:
        keys: list[str] = []
        arguments: list[Argument] = [token]
        for each in batch:
            keys += self._keys.log(each.response_id)
            arguments += (each.known, _ENDINGS[each.ending], len(each.events), each.attempt)
            arguments += each.events
        lengths: Sequence[int] = await self._server.run(scripts.APPEND, keys, arguments)
        return lengths
