"""Reading events: what a log holds, then what comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from gateway_redis import scripts
from gateway_redis.entries import events_of
from gateway_redis.follower import Follower, Place
from gateway_redis.keys import Keys
from gateway_redis.server import Server

logger = logging.getLogger("gateway_redis")

_PAGE = 1000
"""Entries in one answer."""


class EventReader:
    """Reads logs. Those who wait are woken by one blocking read for all (in a cluster: by one for each log)."""

    def __init__(self, server: Server, keys: Keys, process: str) -> None:
        self._server = server
        self._keys = keys
        self._all = None if server.cluster else Follower(server, keys, keys.wake(process))
        self._single: dict[str, Follower] = {}
        """In a cluster, for each log."""

    async def close(self) -> None:
        """Stop waiting."""
        for follower in (self._all, *self._single.values()):
            if follower is not None:
                await follower.close()

    def hand_in(self, response_id: str, events: Sequence[bytes], length: int, last: bool) -> None:
        """This process has written events to a log; its own readers need not ask Redis for them."""
        if self._all is not None:
            self._all.hand_in(response_id, events, length, last)

    def let_go(self, response_id: str) -> None:
        """This process may write no more to a log."""
        if self._all is not None:
            self._all.let_go(response_id)

    def end(self, response_id: str) -> None:
        """The response was deleted."""
        if self._all is not None:
            self._all.end(response_id)

    async def state(self, response_id: str) -> tuple[int, bool]:
        """How many events a log has, and whether it has ended."""
        keys = [self._keys.record(response_id)]
        length, ended = await self._server.run(scripts.STATE, keys, [])
        return max(0, length), ended == 1

    async def read(self, response_id: str, after: int) -> AsyncGenerator[Sequence[bytes], None]:
        loop = asyncio.get_running_loop()
        at = max(after + 1, 0)
        keys = self._keys.log(response_id)
        follower: Follower | None = None
        place: Place | None = None
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
                    continue  # more has come while this one looked
                place.go_on(at)
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

    def _follower(self, response_id: str) -> Follower:
        if self._all is not None:
            return self._all
        follower = self._single.get(response_id)
        if follower is None:
            follower = self._single[response_id] = Follower(self._server, self._keys, None)
        return follower

    def _retire(self, response_id: str, follower: Follower) -> None:
        """Let go of the follower of one log, if nobody needs it."""
        if self._single.get(response_id) is follower and not follower:
            del self._single[response_id]
            follower.stop()


def _joined(entries: Sequence[tuple[bytes, list[bytes]]], at: int) -> list[bytes] | None:
    """The events of entries from number `at` on; None where there is a gap."""
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
