"""Waiting for the events of many logs with one blocking read, and handing them to those who follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from gateway.errors import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.entries import events_of
from gateway_redis.keys import Keys
from gateway_redis.server import BLOCK, Server

logger = logging.getLogger("gateway_redis")

_CHECK = 2.0
"""The same, where logs are followed that this process writes: nothing is read that would show that another ended them."""

_HELD = 1 << 20
"""Bytes that are held for a follower who does not take them; then it has to read the log again."""

_START = "0-0"


class FollowedLog:
    """A log that somebody follows. `position` is how many of its events were handed out or were there before."""

    __slots__ = ("key", "own", "places", "position", "response_id")

    def __init__(self, response_id: str, key: str, position: int) -> None:
        self.response_id = response_id
        self.key = key
        self.position = position
        self.own = False
        """This process writes it, and hands its events in: they need not be read."""
        self.places: set[Place] = set()


class Place:
    """Where one reader of a log is, and what has come for it."""

    __slots__ = ("_at", "_held", "behind", "events", "log", "over", "waiting")

    def __init__(self, log: FollowedLog) -> None:
        self.log = log
        self.behind = True
        """Events have come that were not kept for this reader: it reads them from the log itself."""
        self.over = False
        """Nothing comes after what is here."""
        self.events: list[bytes] = []
        self._at = 0
        self._held = 0
        self.waiting: asyncio.Future[None] | None = None
        """What the reader waits for, when nothing is here."""

    def go_on(self, at: int) -> None:
        """The reader has all events before number `at`; keep those that come from now on."""
        self.behind = False
        self._at = at

    def take(self) -> list[bytes]:
        """What has come."""
        events, self.events, self._held = self.events, [], 0
        return events

    def push(self, events: Sequence[bytes], length: int) -> None:
        """Events have come; the log has `length` with them."""
        if self.behind:
            return
        skip = self._at - (length - len(events))
        if skip < 0 or self._held > _HELD:
            self.behind = True
            self.take()
        elif skip < len(events):
            self.events += events[skip:] if skip else events
            for event in events:
                self._held += len(event)
            self._at = length
        waiting = self.waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def end(self) -> None:
        """Nothing more comes."""
        self.over = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class Follower:
    """Follows logs by one blocking read on all their streams."""

    def __init__(self, server: Server, keys: Keys, wake: str | None) -> None:
        """`wake` is the stream by which the read is ended when another log joins; None where there is one log alone."""
        self._server = server
        self._keys = keys
        self._wake_key = wake
        self._wake_at = _START
        self._logs: dict[str, FollowedLog] = {}
        self._by_key: dict[bytes, FollowedLog] = {}
        self._task: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None
        self._joined = 0
        self._read = 0
        """How many had joined when the read that goes on was begun."""

    def __bool__(self) -> bool:
        """Whether anybody follows."""
        return bool(self._logs)

    def join(self, response_id: str, position: int) -> Place:
        """Follow a log that has `position` events at least."""
        log = self._logs.get(response_id)
        if log is None:
            key = self._keys.log(response_id)[1]
            log = self._logs[response_id] = FollowedLog(response_id, key, position)
            self._by_key[key.encode()] = log
            self._read_anew()
        place = Place(log)
        log.places.add(place)
        return place

    def leave(self, place: Place) -> None:
        """The reader has gone."""
        log = place.log
        log.places.discard(place)
        if not log.places and self._logs.get(log.response_id) is log:
            self._drop(log)

    def hand_in(self, response_id: str, events: Sequence[bytes], length: int, last: bool) -> None:
        """This process has written events to a log, which has `length` of them now."""
        log = self._logs.get(response_id)
        if log is not None:
            log.own = True
            self._deliver(log, events, length, last)

    def let_go(self, response_id: str) -> None:
        """This process may write no more to a log: others may."""
        log = self._logs.get(response_id)
        if log is not None and log.own:
            log.own = False
            self._read_anew()

    def end(self, response_id: str) -> None:
        """The response was deleted."""
        log = self._logs.get(response_id)
        if log is not None:
            self._end(log)

    def stop(self) -> None:
        """Stop waiting."""
        for task in (self._task, self._waking):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        self.stop()
        for task in (self._task, self._waking):
            if task is not None:
                with suppress(asyncio.CancelledError):
                    await task

    def _drop(self, log: FollowedLog) -> None:
        del self._logs[log.response_id]
        del self._by_key[log.key.encode()]

    def _read_anew(self) -> None:
        """A log is to be read that was not."""
        self._joined += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        elif self._waking is None and self._wake_key is not None:
            self._waking = asyncio.create_task(self._wake(self._wake_key))

    async def _wake(self, key: str) -> None:
        """End the read that goes on, until one was begun that knows all logs."""
        try:
            while self._read != self._joined:
                await self._server.run(scripts.WAKE, [key], [])
        except StoreUnavailable:
            pass  # then the read has failed as well, and is begun anew
        finally:
            self._waking = None

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        checked, away = loop.time(), False
        try:
            while self._logs:
                try:
                    logs = self._logs.values()
                    seconds = _CHECK if any(log.own for log in logs) else BLOCK
                    if away or loop.time() > checked + seconds:
                        await self._check()
                        checked, away = loop.time(), False
                        continue
                    streams = [(log.key, f"{log.position}-0") for log in logs if not log.own]
                    if self._wake_key is not None:
                        streams.append((self._wake_key, self._wake_at))
                    self._read = self._joined
                    found = await self._server.wait_for_entries(streams, seconds=seconds)
                except StoreUnavailable as error:
                    if not away:
                        logger.warning("event logs are not followed: %s", error.message)
                    away = True
                    await asyncio.sleep(0.1)
                    continue
                for key, entries in found:
                    self._hand_out(key, entries)
        finally:
            self._task = None

    def _hand_out(self, key: bytes, entries: Sequence[tuple[bytes, list[bytes]]]) -> None:
        log = self._by_key.get(key)
        if log is None:
            if self._wake_key is not None and key == self._wake_key.encode():
                self._wake_at = entries[-1][0].decode()
            return
        for entry_id, fields in entries:
            entry = events_of(entry_id, fields)
            if entry is None:
                self._end(log)
                return
            events, length, last = entry
            self._deliver(log, events, length, last)
            if last:
                return

    def _deliver(self, log: FollowedLog, events: Sequence[bytes], length: int, last: bool) -> None:
        if length > log.position:
            log.position = length
            for place in log.places:
                place.push(events, length)
        if last:
            self._end(log)

    def _end(self, log: FollowedLog) -> None:
        self._drop(log)
        for place in log.places:
            place.end()

    async def _check(self) -> None:
        """Look whether all logs are still there: one that goes while nobody looks wakes nobody."""
        logs = list(self._logs.values())
        records = [self._keys.record(log.response_id) for log in logs]
        state = await self._server.run(scripts.STATE, records, [])
        for log, length, ended in zip(logs, state[::2], state[1::2], strict=True):
            if self._logs.get(log.response_id) is not log:
                continue
            if length < log.position:
                if length >= 0:
                    logger.warning("the log of %s has lost events", log.response_id)
                self._end(log)
            elif ended and length == log.position:
                self._end(log)
