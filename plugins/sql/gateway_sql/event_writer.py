"""Writing events. The waiting events of all responses of this process are stored in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk.stores import BatchEntry, EventBatchWriter, WriteTokens, through_outage
from gateway_sql import logs
from gateway_sql.event_follower import EventFollower
from gateway_sql.statements import SqlDatabase, key


class SqlEventWriter(EventBatchWriter):
    """Appends to logs; see `EventBatchWriter`."""

    def __init__(
        self,
        database: SqlDatabase,
        follower: EventFollower,
        tokens: WriteTokens,
        *,
        outage: float,
    ) -> None:
        super().__init__()
        self._database = database
        self._follower = follower
        self._tokens = tokens
        self._outage = outage

    async def store(self, batch: Sequence[BatchEntry]) -> Sequence[int]:
        token = self._tokens.next()
        lengths = await through_outage(
            lambda: self._database.write(lambda: logs.append(batch, token)),
            seconds=self._outage,
            closing=self.closing,
        )
        self._database.announce([key(each.response_id) for each in batch])
        return lengths

    def deliver(self, entry: BatchEntry, length: int) -> None:
        self._follower.add(entry.response_id, entry.events, length, entry.ending == "now")
