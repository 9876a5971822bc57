"""Writes event logs in batches: the waiting events of all responses of a process are stored together."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextvars import Context
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from gateway.base.errors import StoreUnavailable
from gateway.plugins.protocols import Append, Notification

REFUSED: Final = -1
"""Returned in place of a log's length: the events are no longer needed."""
LOST: Final = -2
"""Returned in place of a log's length: the log is shorter than it was before, so events were lost."""

Ending: TypeAlias = Literal["now", "later", "no"]
"""When a log ends: with these events ("now"), with later events of the same append ("later"), or not with this append
("no")."""

logger = logging.getLogger("gateway.storage")


class _Waiting(NamedTuple):
    """Events that wait to be stored, and the callback for the outcome."""

    events: Sequence[bytes]
    ending: Ending
    attempt: int
    notify: Notification


class BatchEntry:
    """The events that one batch adds to one log: one append, or several that arrived while the previous batch was
    stored."""

    __slots__ = ("attempt", "callbacks", "ending", "events", "known", "response_id")

    def __init__(self, response_id: str, known: int, first: _Waiting) -> None:
        self.response_id = response_id
        self.known = known
        """The minimum length of the log. If the log is shorter, it has lost events."""
        self.events, self.ending, self.attempt, notify = first
        self.callbacks = [notify]


class EventBatchWriter(ABC):
    """Appends events to logs, in the order of the calls. An append is completed even if its caller is cancelled."""

    max_logs: ClassVar[int] = 512
    """Maximum number of logs in one batch."""
    max_bytes: ClassVar[int] = 8 << 20
    """Size in bytes beyond which no more events are added to a batch."""
    max_events: ClassVar[int] = sys.maxsize
    """Maximum number of events that one batch adds to one log."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        """Set when the process ends: writes then no longer wait for a store that is unavailable."""
        self._waiting: dict[str, list[_Waiting]] = {}
        self._written: dict[str, BatchEntry] = {}
        self._known: dict[str, int] = {}
        """Lengths of the logs that this process has written to."""
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def store(self, batch: Sequence[BatchEntry]) -> Sequence[int]:
        """Store a batch, which has one entry for each log. Returns the resulting length of each log, or `REFUSED` or
        `LOST`. Raises `StoreUnavailable` unless it is certain that the whole batch is stored."""

    @abstractmethod
    def deliver(self, entry: BatchEntry, length: int) -> None:
        """Pass stored events to the log's readers in this process. `length` is the log's new length."""

    def release(self, response_id: str) -> None:  # noqa: B027  # most have nothing to release
        """Discard all state of a log, because events of it were not stored."""

    async def append(
        self, response_id: str, events: Sequence[bytes], *, last: bool, attempt: int
    ) -> bool:
        """Append events. Returns True once they are stored, and False if they are no longer needed. Raises
        `StoreUnavailable`."""
        future, set_outcome = _outcome_future()
        self._add(response_id, events, last, attempt, set_outcome)
        outcome = await future
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome

    def open_log(self, response_id: str, notify: Notification, *, attempt: int) -> Append:
        """See `gateway.plugins.protocols.BufferedAppends`."""

        def append(events: Sequence[bytes], last: bool) -> None:
            self._add(response_id, events, last, attempt, notify)

        return append

    async def wait_until_written(self, response_id: str) -> None:
        """Wait until no events of that log wait to be stored."""
        while True:
            future, set_outcome = _outcome_future()
            if (waiting := self._waiting.get(response_id)) is not None:
                waiting.append(waiting[-1]._replace(events=(), notify=set_outcome))
            elif (written := self._written.get(response_id)) is not None:
                written.callbacks.append(set_outcome)
            else:
                return
            await future

    def forget(self, response_id: str) -> None:
        """Forget a deleted response. A later response with the same id is a different one."""
        self._known.pop(response_id, None)

    async def close(self) -> None:
        """Store all waiting events, if the store answers."""
        self.closing.set()
        if self._task is not None:
            await self._task

    def _add(
        self,
        response_id: str,
        events: Sequence[bytes],
        last: bool,
        attempt: int,
        notify: Notification,
    ) -> None:
        waiting = self._waiting.get(response_id)
        if waiting is None:
            waiting = self._waiting[response_id] = []
            if self._task is None:
                # In an empty context: the task stores the events of all owners, and must not belong to the first one.
                self._task = asyncio.create_task(self._write(), context=Context())
        most = self.max_events
        while len(events) > most:
            part = _Waiting(events[:most], "later" if last else "no", attempt, _ignore_outcome)
            waiting.append(part)
            events = events[most:]
        waiting.append(_Waiting(events, "now" if last else "no", attempt, notify))

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                self._written = {each.response_id: each for each in batch}
                try:
                    lengths = await self.store(batch)
                except StoreUnavailable as error:
                    for each in batch:
                        self._fail(each, error)
                    continue
                for each, length in zip(batch, lengths, strict=True):
                    self._finish(each, length)
        except BaseException:
            # A programming error. Do not let callers wait forever.
            broken = StoreUnavailable("The store failed to write events.")
            for each in tuple(self._written.values()):
                self._fail(each, broken)
            nothing = _Waiting((), "no", 0, _ignore_outcome)
            for response_id in tuple(self._waiting):
                self._fail(BatchEntry(response_id, 0, nothing), broken)
            raise
        finally:
            self._task = None

    def _take(self) -> list[BatchEntry]:
        """Remove the next batch from the waiting events, and return it."""
        taken: list[BatchEntry] = []
        left: dict[str, list[_Waiting]] = {}
        size = 0
        for response_id, waiting in self._waiting.items():
            if len(taken) == self.max_logs or size > self.max_bytes:
                left[response_id] = waiting
                continue
            entry = BatchEntry(response_id, self._known.get(response_id, 0), waiting[0])
            taken.append(entry)
            size += sum(map(len, entry.events))
            if len(waiting) == 1:
                continue
            gathered = [*entry.events]
            count = 1
            for events, ending, attempt, notify in waiting[1:]:
                # A store may accept events that end a log but reject others, so they are not merged.
                if ending != entry.ending or attempt != entry.attempt:
                    break
                if len(gathered) + len(events) > self.max_events or size > self.max_bytes:
                    break
                gathered += events
                size += sum(map(len, events))
                entry.callbacks.append(notify)
                count += 1
            entry.events = gathered
            if count < len(waiting):
                left[response_id] = waiting[count:]
        self._waiting = left
        return taken

    def _finish(self, entry: BatchEntry, length: int) -> None:
        response_id = entry.response_id
        if length == LOST:
            self._fail(entry, StoreUnavailable("The store has lost events of this response."))
            return
        stored = length >= 0
        if stored:
            if entry.ending == "now":
                self._known.pop(response_id, None)
            else:
                self._known[response_id] = length
            self.deliver(entry, length)
        else:
            self._known.pop(response_id, None)
            self.release(response_id)
        # Only now: if `deliver` raises, `_write` fails this entry.
        self._written.pop(response_id, None)
        _notify_all(response_id, entry.callbacks, stored)

    def _fail(self, entry: BatchEntry, error: StoreUnavailable) -> None:
        """Fail the entry, and all events that wait behind it in the same log: storing them would leave a gap."""
        response_id = entry.response_id
        self._written.pop(response_id, None)
        self._known.pop(response_id, None)
        self.release(response_id)
        behind = self._waiting.pop(response_id, ())
        _notify_all(response_id, [*entry.callbacks, *(each.notify for each in behind)], error)


def _outcome_future() -> tuple[asyncio.Future[bool | StoreUnavailable], Notification]:
    """A future for the outcome of an append, and the callback that sets its result unless it was cancelled."""
    coming: asyncio.Future[bool | StoreUnavailable] = asyncio.get_running_loop().create_future()

    def set_outcome(outcome: bool | StoreUnavailable) -> None:
        if not coming.done():
            coming.set_result(outcome)

    return coming, set_outcome


def _ignore_outcome(outcome: bool | StoreUnavailable) -> None:
    """The callback of all parts of a large append except the last one."""


def _notify_all(
    response_id: str, callbacks: Sequence[Notification], outcome: bool | StoreUnavailable
) -> None:
    """Call the callbacks of appends to one log with their outcome. Exceptions that they raise are logged."""
    for notify in callbacks:
        try:
            notify(outcome)
        except Exception:
            # A failing callback must not stop the writing of other logs.
            logger.exception("the outcome of events of %s could not be passed on", response_id)
