"""From a background run to its event log, and from there to the clients that this process serves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence

from gateway.errors import StoreUnavailable
from gateway.loop.sinks import TAKEN
from gateway.protocols import AppendsSoon, ResponseStore
from gateway.responses.live_log import LiveLog
from gateway.responses.run import Ready, ResponseRun
from gateway.wire.common import ENCODER
from gateway.wire.events import ENDS, json_of_frame

_encode = ENCODER.encode
_MOST_UNHEARD = 64
"""Writes of one run that may be under way in the store; then the run waits for the first of them."""


class LogWriter:
    """Writes a run's events to its log. What a failed write may have left out goes with the next one.

    The run goes on while a store that can appends; clients are told of an event when it is stored, and not before.
    """

    __slots__ = (
        "_append", "_failed", "_live", "_next", "_response_id", "_run", "_store", "_told", "_unheard",
        "_unsure", "_unsure_from", "_waiting",
    )  # fmt: skip

    def __init__(self, store: ResponseStore, run: ResponseRun, live: LiveLog, told: int) -> None:
        """`told`: how many of the first events are in the log already."""
        self._store = store
        self._run = run
        self._response_id = run.response.id
        self._append = (
            store.open_log(self._response_id, self._hear, attempt=run.attempt)
            if isinstance(store, AppendsSoon)
            else None
        )
        self._live = live
        self._told = live.count = told
        self._next = 0
        """The next event's number."""
        self._unheard: deque[tuple[int, Sequence[bytes], bytes | None, bool]] = deque()
        """What the store was given and has not answered, in order: number, events, frame of one, whether it is the end."""
        self._unsure: Sequence[bytes] = ()
        """Of these it is not known whether they are stored; the first has the number `_unsure_from`."""
        self._unsure_from = 0
        self._failed: StoreUnavailable | None = None
        """Why, where the run has not been told."""
        self._waiting: asyncio.Future[None] | None = None

    def write(self, ready: Ready) -> Awaitable[None]:
        """Have events stored; the last ones are stored when what is returned was awaited.

        Raises `StoreUnavailable` there, also for what was written before.
        """
        if type(ready) is not bytes or self._append is None or self._unsure or self._told:
            return self._write(ready)
        # Nearly always: one token, of which the store takes care without being waited for.
        number = self._next
        self._next = number + 1
        one = (json_of_frame(ready),)
        added = self._append(one, False)
        if added:
            self._live.tell_one(number, ready)
        elif added is None:
            self._unheard.append((number, one, ready, False))
            if len(self._unheard) >= _MOST_UNHEARD:
                return self._until_heard(False)
        else:
            self._refused()
        return TAKEN

    async def _write(self, ready: Ready) -> None:
        if isinstance(ready, bytes):
            first, encoded, last = self._next, [json_of_frame(ready)], False
        else:
            first, encoded = ready[0].sequence_number, list(map(_encode, ready))
            last = type(ready[-1]) in ENDS
        self._next = first + len(encoded)
        if self._told:
            first, encoded = max(first, self._told), encoded[max(0, self._told - first) :]
            if not encoded:
                return
            self._told = 0
        if self._unsure:
            first, encoded = await self._sure(first, encoded, last)
        if self._append is None:
            await self._wait_for(first, encoded, last)
            return
        added = self._append(encoded, last)
        if added:
            self._live.tell(first, encoded, last)
        elif added is None:
            self._unheard.append((first, encoded, None, last))
            if last or len(self._unheard) >= _MOST_UNHEARD:
                await self._until_heard(last)
        else:
            self._refused()
        if last:
            self._append = None  # it may refer to this; then nobody but the garbage collector would end the two

    async def _wait_for(self, first: int, encoded: Sequence[bytes], last: bool) -> None:
        """By a store that has to be waited for."""
        self._unsure, self._unsure_from = encoded, first
        added = await self._store.append_events(
            self._response_id, encoded, last=last, attempt=self._run.attempt
        )
        self._unsure = ()
        if added:
            self._live.tell(first, encoded, last)
        else:
            self._refused()

    def _hear(self, outcome: bool | StoreUnavailable) -> None:
        first, encoded, frame, last = self._unheard.popleft()
        if outcome is True:
            if frame is not None:
                self._live.tell_one(first, frame)
            else:
                self._live.tell(first, encoded, last)
        elif outcome is False:
            self._refused()
        else:
            if not self._unsure:
                self._unsure_from = first
            self._unsure = [*self._unsure, *encoded]
            self._failed = outcome
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _until_heard(self, last: bool) -> None:
        while self._unheard if last else len(self._unheard) >= _MOST_UNHEARD:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if last and self._failed is not None:
            raise self._failed

    def _refused(self) -> None:
        """Somebody else has ended the response, or taken it away: nobody waits for this run."""
        self._live.end()
        self._run.cancel()

    async def _sure(
        self, first: int, encoded: Sequence[bytes], last: bool
    ) -> tuple[int, list[bytes]]:
        """What is not in the log and should be, up to these events, and the number of its first."""
        # None is lost where asking fails, or where the run is to hear of the failure first.
        self._unsure = [*self._unsure, *encoded]
        failed, self._failed = self._failed, None
        if failed is not None and not last:
            raise failed
        count = await self._store.count_events(self._response_id)
        if count < self._unsure_from:
            raise StoreUnavailable("The store has lost events of this response.")
        left = list(self._unsure[count - self._unsure_from :])
        self._unsure = ()
        return count, left
