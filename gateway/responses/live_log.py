"""The short way from a background response to the clients of the process that makes it.

The log in the store is what counts, and what everybody may read. Who reads at its end, here, would be woken for every event
only to find what this process has just written there; instead it is handed on as soon as it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gateway.wire.events import sse_frame_of

Write = Callable[[bytes], bool]
"""Writes server-sent events to a client at once. False: it cannot, and has written nothing."""


class Follower:
    """A client that has got all events up to `at`, and gets what comes."""

    __slots__ = ("_left", "at", "complete", "write")

    def __init__(self, at: int, write: Write) -> None:
        self.at = at
        self.complete = False
        """Whether it has got the last event."""
        self.write = write
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, first: int, frames: Sequence[bytes]) -> bool:
        """Write the frames, of which the first has the sequence number `first`. False: it gets no more."""
        if first <= self.at:
            frames = frames[self.at + 1 - first :]
            if not frames:
                return True
        if not self.write(frames[0] if len(frames) == 1 else b"".join(frames)):
            return False
        self.at += len(frames)
        return True

    def leave(self) -> None:
        """It gets no more from here."""
        if not self._left.done():
            self._left.set_result(None)

    async def until_left(self) -> None:
        await self._left


class LiveLog:
    """The events of one run that are stored, as they are stored."""

    __slots__ = ("_ahead", "_ended", "_followers", "_writes", "count")

    def __init__(self) -> None:
        self.count = 0
        """How many are stored, as far as this process knows."""
        self._followers: tuple[Follower, ...] = ()
        """All have got what was told; where they are is written into them when that is asked for, not with every event."""
        self._writes: tuple[Write, ...] = ()
        """Theirs."""
        self._ahead = False
        """Whether one of them asked for less than what follows next."""
        self._ended = False

    def tell_one(self, number: int, frame: bytes) -> None:
        """The event with this number, which is not the last, is stored now: the way of nearly every token.

        `frame` is it as a server-sent event.
        """
        if number != self.count or self._ahead:
            self._tell(number, (frame,), False)
            return
        for write in self._writes:
            if not write(frame):
                self._part_with(*(each for each in self._followers if each.write is write))
        self.count = number + 1

    def tell(self, first: int, encoded: Sequence[bytes], last: bool) -> None:
        """These are stored now, of which the first has the number `first`; `last`: nothing follows."""
        if self._followers:
            self._tell(first, list(map(sse_frame_of, encoded)), last)
        else:
            self.count = first + len(encoded)

    def _tell(self, first: int, frames: Sequence[bytes], last: bool) -> None:
        for each in self._followers:
            each.at = max(each.at, self.count - 1)
            # After a gap, what is missing is in the store.
            if first != self.count or not each.take(first, frames):
                self._part_with(each)
            elif last:
                each.complete = True
                self._part_with(each)
        self.count = first + len(frames)
        self._ahead = any(each.at >= self.count for each in self._followers)

    def end(self) -> None:
        """The run is over; what it has not told, if anything, is in the store."""
        self._ended = True
        self._part_with(*self._followers)

    async def follow(self, at: int, write: Write) -> Follower:
        """Hand on to `write` all that follows event `at`, of which all is stored that this log has counted.

        Returns when there is no more, or when the client cannot take it so quickly: the rest is then read from the store,
        from where the follower is.
        """
        follower = Follower(at, write)
        if not self._ended:
            self._have((*self._followers, follower))
            try:
                await follower.until_left()
            finally:
                self._have(each for each in self._followers if each is not follower)
        return follower

    def _part_with(self, *parting: Follower) -> None:
        self._have(each for each in self._followers if each not in parting)
        for each in parting:
            each.at = max(each.at, self.count - 1)
            each.leave()

    def _have(self, followers: Iterable[Follower]) -> None:
        self._followers = tuple(followers)
        self._writes = tuple(each.write for each in self._followers)
        self._ahead = any(each.at >= self.count for each in self._followers)
