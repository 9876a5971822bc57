"""Writing the events of a background response to its log, and notifying clients of this process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence

from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.live_log import LiveLog
from gateway.base.errors import StoreUnavailable
from gateway.generation.sinks import ACCEPTED
from gateway.plugins.protocols import BufferedAppends, ResponseStore
from gateway.wire.common import ENCODER
from gateway.wire.event_frames import SseEncoder
from gateway.wire.events import ENDS, Event

_encode = ENCODER.encode
_MAX_PENDING = 64
"""Maximum number of pending writes of one run; beyond it, the run waits for the first of them."""


class LogWriter:
    """Writes a run's events to its log. Events that a failed write may have lost are written again with the next write.

    If the store has buffered appends, the run continues while they are written. Clients receive an event only after it
    is stored.
    """

    __slots__ = (
        "_append",
        "_attempt",
        "_failed",
        "_frame",
        "_live",
        "_next",
        "_pending",
        "_response_id",
        "_run",
        "_store",
        "_stored",
        "_unconfirmed",
        "_unconfirmed_from",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, store: ResponseStore, run: ResponseAnswer, live: LiveLog, stored: int
    ) -> None:
        """`stored`: number of events that the log already has."""
        self._store = store
        self._run = run
        self._response_id = run.output.response.id
        self._attempt = run.output.storage.attempt
        self._append = (
            store.open_log(self._response_id, self._on_outcome, attempt=run.output.storage.attempt)
            if isinstance(store, BufferedAppends)
            else None
        )
        self._frame = SseEncoder().frame
        self._live = live
        self._stored = live.count = stored
        self._next = 0
        """Sequence number of the next event."""
        self._pending: deque[tuple[int, Sequence[bytes], bytes | None, bool]] = deque()
        """Pending writes, in order: number of the first event, events, frame if it is a single event, whether they end
        the log."""
        self._unconfirmed: Sequence[bytes] = ()
        """Events that may or may not be stored. The first one has the number `_unconfirmed_from`."""
        self._unconfirmed_from = 0
        self._failed: StoreUnavailable | None = None
        """An error that was not raised to the run yet, if any."""
        self._waiting: asyncio.Future[None] | None = None

    @property
    def made(self) -> int:
        """Number of events that the run has made."""
        return max(self._next, self._live.count)

    @property
    def behind(self) -> int:
        """Number of events that the run has made and that are not known to be stored yet."""
        return max(0, self._next - self._live.count)

    def write(self, events: Sequence[Event]) -> Awaitable[None]:
        """Write events. If they end the log, they are stored when the returned awaitable completes.

        The awaitable raises `StoreUnavailable`, also for failures of earlier writes.
        """
        if (
            len(events) != 1
            or type(event := events[0]) in ENDS
            or self._append is None
            or self._unconfirmed
            or self._stored
        ):
            return self._write(events)
        # Fast path: a single token, which the store accepts without waiting.
        number = event.sequence_number
        self._next = number + 1
        frame = self._frame(event)
        one = (frame[frame.index(b"\n") + 7 : -2],)  # the event's JSON
        added = self._append(one, False)
        if added:
            live = self._live
            if number == live.count and (write := live.write_one) is not None and write(frame):
                live.count = number + 1
            else:
                live.publish_one(number, frame)
        elif added is None:
            self._pending.append((number, one, frame, False))
            if len(self._pending) >= _MAX_PENDING:
                return self._wait_until_stored(False)
        else:
            self._refused()
        return ACCEPTED

    async def _write(self, events: Sequence[Event]) -> None:
        first, encoded = events[0].sequence_number, list(map(_encode, events))
        last = type(events[-1]) in ENDS
        self._next = first + len(encoded)
        if self._stored:
            first, encoded = max(first, self._stored), encoded[max(0, self._stored - first) :]
            if not encoded:
                return
            self._stored = 0
        if self._unconfirmed:
            first, encoded = await self._missing_events(encoded, last)
        if self._attempt != self._run.output.storage.attempt:
            self._append = None
        if self._append is None:
            await self._write_unbuffered(first, encoded, last)
            return
        added = self._append(encoded, last)
        if added:
            self._live.publish(first, encoded, last)
        elif added is None:
            self._pending.append((first, encoded, None, last))
            if last or len(self._pending) >= _MAX_PENDING:
                await self._wait_until_stored(last)
        else:
            self._refused()
        if last:
            self._append = None  # break the reference cycle

    async def _write_unbuffered(self, first: int, encoded: Sequence[bytes], last: bool) -> None:
        """Write to a store without buffered appends."""
        self._unconfirmed, self._unconfirmed_from = encoded, first
        added = await self._store.append_events(
            self._response_id, encoded, last=last, attempt=self._run.output.storage.attempt
        )
        self._unconfirmed = ()
        if added:
            self._live.publish(first, encoded, last)
        else:
            self._refused()

    def _on_outcome(self, outcome: bool | StoreUnavailable) -> None:
        first, encoded, frame, last = self._pending.popleft()
        if outcome is True:
            if frame is not None:
                self._live.publish_one(first, frame)
            else:
                self._live.publish(first, encoded, last)
        elif outcome is False:
            self._refused()
        else:
            if not self._unconfirmed:
                self._unconfirmed_from = first
            self._unconfirmed = [*self._unconfirmed, *encoded]
            self._failed = outcome
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait_until_stored(self, last: bool) -> None:
        while self._pending if last else len(self._pending) >= _MAX_PENDING:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if last and self._failed is not None:
            raise self._failed

    def _refused(self) -> None:
        """Handle a rejected write: another process has ended or taken over the response, so this run stops."""
        self._live.end()
        self._run.scope.cancel()

    async def _missing_events(
        self, encoded: Sequence[bytes], last: bool
    ) -> tuple[int, list[bytes]]:
        """Return the number of the first event that is not stored, and the events from there to the end of
        `encoded`."""
        # Keep the events in case the query fails, or an earlier failure must be raised first.
        self._unconfirmed = [*self._unconfirmed, *encoded]
        failed, self._failed = self._failed, None
        if failed is not None and not last:
            raise failed
        count = await self._store.count_events(self._response_id)
        if count < self._unconfirmed_from:
            raise StoreUnavailable("The store has lost events of this response.")
        left = list(self._unconfirmed[count - self._unconfirmed_from :])
        self._unconfirmed = ()
        return count, left
