"""Reading event logs: first the stored events, then new ones as they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from gateway_sql import logs
from gateway_sql.statements import SqlDatabase, key

_KEPT = 256 << 10
"""Maximum number of bytes of a followed log that are kept in memory, for readers that are almost up to date."""


class _Followed:
    """A log that this process reads: its newest events, if this process has written them, and the waiting readers."""

    __slots__ = ("_recent", "_size", "_start", "_waiting", "ended", "news", "readers")

    def __init__(self) -> None:
        self.readers = 0
        self.news = 0
        """Number of notifications so far."""
        self.ended: int | None = None
        """The final length of the log, if this process has ended it."""
        self._recent: list[bytes] = []
        self._start = 0
        """The sequence number of the first event in `_recent`."""
        self._size = 0
        self._waiting: list[asyncio.Future[None]] = []

    def add(self, events: Sequence[bytes], length: int, ended: bool) -> None:
        """Keep events that were stored. `length` is the length of the log after them, and `ended` tells whether they
        are its end."""
        if length - len(events) != self._start + len(self._recent):
            self.forget()
            self._start = length - len(events)
        self._recent += events
        self._size += sum(map(len, events))
        if self._size > _KEPT:
            half = len(self._recent) // 2
            self._start += half
            self._size -= sum(map(len, self._recent[:half]))
            del self._recent[:half]
        if ended:
            self.ended = length
        self.notify()

    def recent(self, at: int) -> list[bytes]:
        """The events from position `at` on, if they are in memory; otherwise an empty list."""
        skipped = at - self._start
        if skipped < 0 or skipped >= len(self._recent):
            return []
        return self._recent[skipped:]

    def forget(self) -> None:
        """Drop the events in memory."""
        self._recent.clear()
        self._size = 0
        self.ended = None

    def notify(self) -> None:
        self.news += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self) -> None:
        """Wait for the next notification."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            if waiting in self._waiting:  # the reader was cancelled
                self._waiting.remove(waiting)


class EventFollower:
    """Reads logs, and waits for their next events."""

    def __init__(self, database: SqlDatabase, since: Callable[[], float]) -> None:
        """`since` returns a time. Responses that were not used after it have expired."""
        self._database = database
        self._since = since
        self._followed: dict[str, _Followed] = {}

    def add(self, response_id: str, events: Sequence[bytes], length: int, ended: bool) -> None:
        """Notify the readers of a log in this process that the process has stored events. The log now has `length`
        events."""
        followed = self._followed.get(key(response_id))
        if followed is not None:
            followed.add(events, length, ended)

    def notify(self, names: Iterable[str]) -> None:
        """Notify the readers of the logs with these keys that the logs have changed, or were deleted."""
        for name in names:
            if (followed := self._followed.get(name)) is not None:
                followed.forget()
                followed.notify()

    def notify_all(self) -> None:
        """Notify the readers of all logs: any log may have changed."""
        self.notify(tuple(self._followed))

    async def read(self, response_id: str, after: int) -> AsyncGenerator[Sequence[bytes], None]:
        """See `EventLogs.read_events`."""
        at = max(after + 1, 0)
        name = key(response_id)
        followed = self._followed.setdefault(name, _Followed())
        followed.readers += 1
        try:
            while True:
                if events := followed.recent(at):
                    at += len(events)
                    yield events
                    continue
                if followed.ended is not None and at >= followed.ended:
                    return
                news = followed.news
                position = at
                state = await self._database.read(
                    lambda: logs.read(response_id, position, self._since())  # noqa: B023  # awaited here
                )
                if state is None:
                    return
                if state.events:
                    at += len(state.events)
                    yield state.events
                elif state.ended:
                    return
                elif followed.news == news:
                    await followed.wait()
        finally:
            followed.readers -= 1
            if not followed.readers and self._followed.get(name) is followed:
                del self._followed[name]
