"""Following many event logs with one blocking read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context

from gateway.sdk import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.entries import events_of
from gateway_redis.keys import Keys
from gateway_redis.server import BLOCK, RedisServer

logger = logging.getLogger("gateway_redis")

_CHECK = 2.0
"""The same for logs that this process writes: they are not read, so nothing would show that another process ended
them."""

_HELD = 1 << 20
"""Maximum number of bytes buffered for a slow reader. Past that, it reads the log again."""

_PAUSE = 1.0
"""Seconds until a read is tried again after a defect."""

_START = "0-0"


class FollowedLog:
    """A log that is being followed. `position` is the number of its events that were delivered or existed before."""

    __slots__ = ("cursors", "key", "own", "position", "response_id")

    def __init__(self, response_id: str, key: str, position: int) -> None:
        self.response_id = response_id
        self.key = key
        self.position = position
        self.own = False
        """Whether this process writes the log and hands over its events, so that they need not be read."""
        self.cursors: set[LogCursor] = set()


class LogCursor:
    """The position of one reader of a log, and the events buffered for it."""

    __slots__ = ("_at", "_held", "behind", "events", "log", "over", "waiting")

    def __init__(self, log: FollowedLog) -> None:
        self.log = log
        self.behind = True
        """Whether events arrived that were not buffered; the reader has to read them from the log."""
        self.over = False
        """Whether no events follow the buffered ones."""
        self.events: list[bytes] = []
        self._at = 0
        self._held = 0
        self.waiting: asyncio.Future[None] | None = None
        """The future that the reader awaits while the buffer is empty."""

    def caught_up_to(self, at: int) -> None:
        """The reader has all events before number `at`; buffer later ones from now on."""
        self.behind = False
        self._at = at

    def take(self) -> list[bytes]:
        """Remove and return the buffered events."""
        events, self.events, self._held = self.events, [], 0
        return events

    def push(self, events: Sequence[bytes], length: int) -> None:
        """Buffer new events; `length` is the length of the log with them."""
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
        """Mark the log as ended."""
        self.over = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class StreamFollower:
    """Follows logs with one blocking read on all their streams."""

    def __init__(self, server: RedisServer, keys: Keys, wake: str | None) -> None:
        """`wake` is the stream that interrupts the read when another log joins; None if there is only one log."""
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
        """The number of logs that had joined when the current read was started."""

    def __bool__(self) -> bool:
        """Whether any log is followed."""
        return bool(self._logs)

    def join(self, response_id: str, position: int) -> LogCursor:
        """Follow a log that has at least `position` events."""
        log = self._logs.get(response_id)
        if log is None:
            key = self._keys.log(response_id)[1]
            log = self._logs[response_id] = FollowedLog(response_id, key, position)
            self._by_key[key.encode()] = log
            self._restart_read()
        cursor = LogCursor(log)
        log.cursors.add(cursor)
        return cursor

    def leave(self, cursor: LogCursor) -> None:
        """Remove a reader."""
        log = cursor.log
        log.cursors.discard(cursor)
        if not log.cursors and self._logs.get(log.response_id) is log:
            self._drop(log)

    def deliver(self, response_id: str, events: Sequence[bytes], length: int, last: bool) -> None:
        """Notifies followers in this process: the log now has `length` events."""
        log = self._logs.get(response_id)
        if log is not None:
            log.own = True
            self._deliver(log, events, length, last)

    def release(self, response_id: str) -> None:
        """This process may no longer write to the log; others may."""
        log = self._logs.get(response_id)
        if log is not None and log.own:
            log.own = False
            self._restart_read()

    def end(self, response_id: str) -> None:
        """End the readers of a deleted response."""
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

    def _restart_read(self) -> None:
        """Have the current read restarted, because a log joined."""
        self._joined += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), context=Context())
        elif self._waking is None and self._wake_key is not None:
            self._waking = asyncio.create_task(self._wake(self._wake_key), context=Context())

    async def _wake(self, key: str) -> None:
        """Interrupt the current read, until one was started that includes all logs."""
        try:
            while self._read != self._joined:
                await self._server.run(scripts.WAKE, [key], [])
        except StoreUnavailable:
            pass  # the read has failed as well and is restarted
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
                    for key, entries in found:
                        self._hand_out(key, entries)
                except StoreUnavailable as error:
                    if not away:
                        logger.warning("event logs are not followed: %s", error.message)
                    away = True
                    await asyncio.sleep(0.1)
                except Exception:
                    # A defect. Without this, the readers would wait for ever.
                    logger.exception("event logs could not be followed")
                    away = True
                    await asyncio.sleep(_PAUSE)
        finally:
            self._task = None

    def _hand_out(self, key: bytes, entries: Sequence[tuple[bytes, list[bytes]]]) -> None:
        log = self._by_key.get(key)
        if log is None:
            if self._wake_key is not None and key == self._wake_key.encode():
                self._wake_at = entries[-1][0].decode()
            return
        for entry_id, fields in entries:
            try:
                entry = events_of(entry_id, fields)
            except Exception:  # not written by the gateway
                logger.exception("the log of %s has an entry that cannot be read", log.response_id)
                entry = None
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
            for cursor in log.cursors:
                cursor.push(events, length)
        if last:
            self._end(log)

    def _end(self, log: FollowedLog) -> None:
        self._drop(log)
        for cursor in log.cursors:
            cursor.end()

    async def _check(self) -> None:
        """Check that all logs still exist: the deletion of a log does not end a blocking read."""
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
