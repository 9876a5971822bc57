"""The short way from a background response to the clients of the process that makes it.

The log in the store is what counts, and what everybody may read. Who reads at its end, here, would be woken for every event
only to find what this process has just written there; instead it is handed on as soon as it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.wire.events import TERMINAL, Event, sse_frame_around

Write = Callable[[bytes], bool]
"""Writes server-sent events to a client at once. False: it cannot, and has written nothing."""


class Follower:
    """A client that has got all events up to `at`, and gets what comes."""

    def __init__(self, at: int, write: Write) -> None:
        self.at = at
        self.complete = False
        """Whether it has got the last event."""
        self._write = write
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, first: int, frames: Sequence[bytes]) -> bool:
        """Write the frames, of which the first has the sequence number `first`. False: it gets no more."""
        if first <= self.at:
            frames = frames[self.at + 1 - first :]
            if not frames:
                return True
        if not self._write(frames[0] if len(frames) == 1 else b"".join(frames)):
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

    def __init__(self) -> None:
        self.count = 0
        """How many are stored, as far as this process knows."""
        self._followers: list[Follower] = []
        self._ended = False

    def tell(self, events: Sequence[Event], encoded: Sequence[bytes]) -> None:
        """These are stored now."""
        first = events[0].sequence_number
        gap, self.count = first != self.count, events[-1].sequence_number + 1
        if not self._followers:
            return
        last = isinstance(events[-1], TERMINAL)
        frames = list(map(sse_frame_around, events, encoded))
        for each in self._followers.copy():
            # After a gap, what is missing is in the store.
            if gap or not each.take(first, frames):
                self._part_with(each)
            elif last:
                each.complete = True
                self._part_with(each)

    def end(self) -> None:
        """The run is over; what it has not told, if anything, is in the store."""
        self._ended = True
        for each in tuple(self._followers):
            self._part_with(each)

    async def follow(self, at: int, write: Write) -> Follower:
        """Hand on to `write` all that follows event `at`, of which all is stored that this log has counted.

        Returns when there is no more, or when the client cannot take it so quickly: the rest is then read from the store,
        from where the follower is.
        """
        follower = Follower(at, write)
        if not self._ended:
            self._followers.append(follower)
            try:
                await follower.until_left()
            finally:
                with suppress(ValueError):  # it may have been parted with
                    self._followers.remove(follower)
        return follower

    def _part_with(self, follower: Follower) -> None:
        self._followers.remove(follower)
        follower.leave()
