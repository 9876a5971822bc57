"""Writing events: those of all responses of this process are stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import StoreUnavailable
from gateway.protocols import Append, Notification
from gateway.sql import logs
from gateway.sql.event_follower import EventFollower
from gateway.sql.statements import SqlDatabase, key
from gateway.sql.tokens import TransactionTokens
from gateway.store_writes import notify_all, outcome_future, through_outage

_LOGS = 512
_BYTES = 8 << 20
"""Maximum number of logs, and size in bytes, of one transaction."""


class _Waiting(NamedTuple):
    """Events that wait to be stored, and who is notified."""

    events: Sequence[bytes]
    last: bool
    attempt: int
    notify: Notification


class _Entry:
    """What one transaction adds to one log."""

    __slots__ = ("append", "callbacks")

    def __init__(self, append: logs.Append, callbacks: list[Notification]) -> None:
        self.append = append
        self.callbacks = callbacks


class SqlEventWriter:
    """Appends to logs, in the order of the calls. An append that was started is completed even if its caller is
    cancelled."""

    def __init__(
        self,
        database: SqlDatabase,
        follower: EventFollower,
        tokens: TransactionTokens,
        *,
        outage: float,
    ) -> None:
        self._database = database
        self._follower = follower
        self._tokens = tokens
        self._outage = outage
        self._waiting: dict[str, list[_Waiting]] = {}
        self._written: dict[str, _Entry] = {}
        self._known: dict[str, int] = {}
        """Lengths of the logs that this process has written to. A log that is shorter has lost events."""
        self._task: asyncio.Task[None] | None = None

    async def append(
        self, response_id: str, events: Sequence[bytes], *, last: bool, attempt: int
    ) -> bool:
        """Returns True once the events are stored, False if they are no longer needed."""
        future, set_outcome = outcome_future()
        self._add(response_id, _Waiting(events, last, attempt, set_outcome))
        outcome = await future
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome

    def open_log(self, response_id: str, notify: Notification, *, attempt: int) -> Append:
        """See `gateway.protocols.BufferedAppends`."""

        def append(events: Sequence[bytes], last: bool) -> None:
            self._add(response_id, _Waiting(events, last, attempt, notify))

        return append

    async def wait_until_written(self, response_id: str) -> None:
        """Returns when no events of that log wait to be stored."""
        while True:
            future, set_outcome = outcome_future()
            if (waiting := self._waiting.get(response_id)) is not None:
                waiting.append(_Waiting((), waiting[-1].last, waiting[-1].attempt, set_outcome))
            elif (written := self._written.get(response_id)) is not None:
                written.callbacks.append(set_outcome)
            else:
                return
            await future

    def forget(self, response_id: str) -> None:
        """Forget a deleted response. A later response with the same id is a different one."""
        self._known.pop(response_id, None)

    async def close(self) -> None:
        """Store all waiting events."""
        if self._task is not None:
            await self._task

    def _add(self, response_id: str, waiting: _Waiting) -> None:
        known = self._waiting.get(response_id)
        if known is None:
            self._waiting[response_id] = [waiting]
            if self._task is None:
                self._task = asyncio.create_task(self._write())
        else:
            known.append(waiting)

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                self._written = {each.append.response_id: each for each in batch}
                appends = [each.append for each in batch]
                token = self._tokens.next()
                try:
                    lengths = await through_outage(
                        lambda: self._database.write(lambda: logs.append(appends, token)),  # noqa: B023  # awaited here
                        seconds=self._outage,
                    )
                except StoreUnavailable as error:
                    for each in batch:
                        self._fail(each, error)
                    continue
                for each, length in zip(batch, lengths, strict=True):
                    self._finish(each, length)
                self._database.announce([key(each.response_id) for each in appends])
        except BaseException:
            # A programming error: do not let callers wait forever.
            broken = StoreUnavailable("The store failed to write events.")
            for each in tuple(self._written.values()):
                self._fail(each, broken)
            for response_id in tuple(self._waiting):
                self._fail(_Entry(logs.Append(response_id, (), False, 0, 0), []), broken)
            raise
        finally:
            self._task = None

    def _take(self) -> list[_Entry]:
        """What the next transaction stores: one entry for each log."""
        taken: list[_Entry] = []
        left: dict[str, list[_Waiting]] = {}
        size = 0
        for response_id, waiting in self._waiting.items():
            if len(taken) == _LOGS or size > _BYTES:
                left[response_id] = waiting
                continue
            first = waiting[0]
            count = 1
            size += sum(map(len, first.events))
            # Events that end a log can be accepted where others are not, so they are not merged.
            while (
                count < len(waiting)
                and waiting[count].last == first.last
                and waiting[count].attempt == first.attempt
                and size <= _BYTES
            ):
                size += sum(map(len, waiting[count].events))
                count += 1
            some = waiting[:count]
            events = first.events if count == 1 else [one for each in some for one in each.events]
            known = self._known.get(response_id, 0)
            append = logs.Append(response_id, events, first.last, first.attempt, known)
            taken.append(_Entry(append, [each.notify for each in some]))
            if count < len(waiting):
                left[response_id] = waiting[count:]
        self._waiting = left
        return taken

    def _finish(self, entry: _Entry, length: int) -> None:
        append = entry.append
        self._written.pop(append.response_id, None)
        if length == logs.LOST:
            self._fail(entry, StoreUnavailable("The store has lost events of this response."))
            return
        stored = length >= 0
        if stored and not append.last:
            self._known[append.response_id] = length
        else:
            self._known.pop(append.response_id, None)
        if stored:
            self._follower.add(append.response_id, append.events, length, append.last)
        notify_all(append.response_id, entry.callbacks, stored)

    def _fail(self, entry: _Entry, error: StoreUnavailable) -> None:
        """Fail the entry and what waits behind it in the same log: storing that would leave a gap."""
        response_id = entry.append.response_id
        self._written.pop(response_id, None)
        self._known.pop(response_id, None)
        behind = self._waiting.pop(response_id, ())
        notify_all(response_id, [*entry.callbacks, *(each.notify for each in behind)], error)
