"""Direct delivery of a background response's events to clients of the process that runs it.

The log in the store is authoritative, and each process can read it. A client of this process that has read to the end
of the log needs no further reads: events are passed on as soon as they are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gateway.wire.event_frames import sse_frame_of

Write = Callable[[bytes], bool]
"""Writes server-sent events to a client immediately. Returns False, having written nothing, if it cannot."""


class LogFollower:
    """A client that has received all events up to `at`, and receives new ones."""

    __slots__ = ("_left", "at", "complete", "write")

    def __init__(self, at: int, write: Write) -> None:
        self.at = at
        self.complete = False
        """Whether the client has received the last event of the log."""
        self.write = write
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, first: int, frames: Sequence[bytes]) -> bool:
        """Write the frames; `first` is the sequence number of the first one. Returns False if the follower has left."""
        if first <= self.at:
            frames = frames[self.at + 1 - first :]
            if not frames:
                return True
        if not self.write(frames[0] if len(frames) == 1 else b"".join(frames)):
            return False
        self.at += len(frames)
        return True

    def leave(self) -> None:
        """Stop following."""
        if not self._left.done():
            self._left.set_result(None)

    async def until_no_readers(self) -> None:
        await self._left


class LiveLog:
    """Passes on the events of one response as they are stored."""

    __slots__ = ("_ahead", "_ended", "_followers", "_writes", "count", "write_one")

    def __init__(self) -> None:
        self.count = 0
        """Number of stored events, as far as this process knows."""
        self.write_one: Write | None = None
        """The `write` function of the only follower, if there is exactly one and it has received all events; otherwise
        None. After storing the next event, the caller may use it and then increase `count`, instead of calling
        `publish_one`."""
        self._followers: tuple[LogFollower, ...] = ()
        """The followers. Each has received all events. Their positions are only updated when they are needed."""
        self._writes: tuple[Write, ...] = ()
        """The followers' `write` functions."""
        self._ahead = False
        """Whether a follower has already received the next event, for example from the store."""
        self._ended = False

    @property
    def followers(self) -> int:
        """Number of clients that follow."""
        return len(self._followers)

    def publish_one(self, number: int, frame: bytes) -> None:
        """Notify followers of one stored event. Called for nearly every token.

        `number` is its sequence number, and `frame` its server-sent event. It is not the last event of the log.
        """
        if number != self.count or self._ahead:
            self._publish(number, (frame,), False)
            return
        for write in self._writes:
            if not write(frame):
                self._drop_followers(*(each for each in self._followers if each.write is write))
        self.count = number + 1

    def publish(self, first: int, encoded: Sequence[bytes], last: bool) -> None:
        """Notify followers of stored events. `first` is the number of the first one. `last`: whether the log ends with
        them."""
        if self._followers:
            self._publish(first, list(map(sse_frame_of, encoded)), last)
        else:
            self.count = first + len(encoded)

    def _publish(self, first: int, frames: Sequence[bytes], last: bool) -> None:
        for each in self._followers:
            each.at = max(each.at, self.count - 1)
            # After a gap, the missing events are in the store.
            if first != self.count or not each.take(first, frames):
                self._drop_followers(each)
            elif last:
                each.complete = True
                self._drop_followers(each)
        self.count = first + len(frames)
        self._set_followers(self._followers)

    def end(self) -> None:
        """End the log when the run has ended. Events that were not passed on, if any, are in the store."""
        self._ended = True
        self._drop_followers(*self._followers)

    async def follow(self, at: int, write: Write) -> LogFollower:
        """Pass all events after `at` to `write`. All events that this log has counted are in the store.

        Returns when the log ends or the client is too slow. The caller then reads the rest from the store, starting at
        the follower's position.
        """
        follower = LogFollower(at, write)
        if not self._ended:
            self._set_followers((*self._followers, follower))
            try:
                await follower.until_no_readers()
            finally:
                self._set_followers(each for each in self._followers if each is not follower)
        return follower

    def _drop_followers(self, *parting: LogFollower) -> None:
        self._set_followers(each for each in self._followers if each not in parting)
        for each in parting:
            each.at = max(each.at, self.count - 1)
            each.leave()

    def _set_followers(self, followers: Iterable[LogFollower]) -> None:
        self._followers = tuple(followers)
        self._writes = tuple(each.write for each in self._followers)
        self._ahead = any(each.at >= self.count for each in self._followers)
        self.write_one = self._writes[0] if len(self._writes) == 1 and not self._ahead else None
