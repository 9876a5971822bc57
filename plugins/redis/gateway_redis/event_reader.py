"""Reading event logs: first the stored events, then new ones as they arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from gateway_redis import scripts
from gateway_redis.entries import events_of
from gateway_redis.follower import LogCursor, StreamFollower
from gateway_redis.keys import Keys
from gateway_redis.server import RedisServer

logger = logging.getLogger("gateway_redis")

_PAGE = 1000
"""Maximum number of entries per read."""


class EventReader:
    """Reads logs. Waiting readers share one blocking read (in a cluster, one per log)."""

    def __init__(self, server: RedisServer, keys: Keys, process: str) -> None:
        self._server = server
        self._keys = keys
        self._all = None if server.cluster else StreamFollower(server, keys, keys.wake(process))
        self._single: dict[str, StreamFollower] = {}
        """Followers by response id; used in a cluster only."""

    async def close(self) -> None:
        """Stop waiting."""
        for follower in (self._all, *self._single.values()):
            if follower is not None:
                await follower.close()

    def deliver(self, response_id: str, events: Sequence[bytes], length: int, last: bool) -> None:
        """Hand events that this process has written to its own readers, so that they need not read them from Redis."""
        if self._all is not None:
            self._all.deliver(response_id, events, length, last)

    def release(self, response_id: str) -> None:
        """This process may no longer write to the log."""
        if self._all is not None:
            self._all.release(response_id)

    def end(self, response_id: str) -> None:
        """End the readers of a deleted response."""
        if self._all is not None:
            self._all.end(response_id)

    async def state(self, response_id: str) -> tuple[int, bool]:
        """The number of events in a log, and whether it has ended."""
        keys = [self._keys.record(response_id)]
        length, ended = await self._server.run(scripts.STATE, keys, [])
        return max(0, length), ended == 1

    async def read(self, response_id: str, after: int) -> AsyncGenerator[Sequence[bytes], None]:
        loop = asyncio.get_running_loop()
        at = max(after + 1, 0)
        keys = self._keys.log(response_id)
        follower: StreamFollower | None = None
        place: LogCursor | None = None
        try:
            while True:
                page = await self._server.run(scripts.PAGE, keys, [at, _PAGE])
                if page is None:
                    return
                length, ended, entries = page
                batch = _joined(entries, at)
                if batch is None:
                    logger.warning("the log of %s has lost events", response_id)
                    return
                if batch:
                    at += len(batch)
                    yield batch
                if len(entries) == _PAGE:
                    continue
                if ended:
                    return
                if follower is None or place is None:
                    follower = self._follower(response_id)
                    place = follower.join(response_id, length)
                if place.log.position > length:
                    continue  # more events arrived during the read
                place.caught_up_to(at)
                while not place.behind:
                    if place.events:
                        batch = place.take()
                        at += len(batch)
                        yield batch
                    elif place.over:
                        return
                    else:
                        place.waiting = loop.create_future()
                        await place.waiting
        finally:
            if follower is not None and place is not None:
                follower.leave(place)
                self._retire(response_id, follower)

    def _follower(self, response_id: str) -> StreamFollower:
        if self._all is not None:
            return self._all
        follower = self._single.get(response_id)
        if follower is None:
            follower = self._single[response_id] = StreamFollower(self._server, self._keys, None)
        return follower

    def _retire(self, response_id: str, follower: StreamFollower) -> None:
        """Discard the follower of a log if nobody uses it."""
        if self._single.get(response_id) is follower and not follower:
            del self._single[response_id]
            follower.stop()


def _joined(entries: Sequence[tuple[bytes, list[bytes]]], at: int) -> list[bytes] | None:
    """The events of the entries, starting at event number `at`. None if there is a gap."""
    batch: list[bytes] = []
    for entry_id, fields in entries:
        entry = events_of(entry_id, fields)
        if entry is None:
            return batch
        events, length, _ = entry
        first = length - len(events)
        skip = at + len(batch) - first
        if skip < 0:
            return None
        batch += events[skip:]
    return batch
