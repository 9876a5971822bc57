"""Writing events: the events of all responses of this process are batched into one call to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gateway.sdk import Append, Notification, StoreUnavailable
from gateway.sdk.stores import notify_all, outcome_future, through_outage
from gateway_redis import scripts
from gateway_redis.event_reader import EventReader
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer
from gateway_redis.tokens import CallTokens

_ENTRIES = 512
_BYTES = 4 << 20
"""Maximum size of one call in bytes, so that Redis is not blocked for long."""

_EVENTS = 1000
"""Maximum number of events per entry: Lua's stack is limited to a few thousand values."""

_LOST = -2


_End: TypeAlias = Literal["1", "0", ""]
"""Whether a log ends: with these events ("1"), with later ones of the same call ("0"), or not now ("")."""
_Append: TypeAlias = tuple[Sequence[bytes], _End, int, Notification]
"""Events waiting to be written to one log, whether they end it, the attempt that produced them, and the callback to
notify."""


class _Entry:
    """What one call adds to one log: one append, or several that arrived during the previous call."""

    __slots__ = ("attempt", "callbacks", "end", "events", "response_id")

    def __init__(self, response_id: str, first: _Append) -> None:
        self.response_id = response_id
        self.events, self.end, self.attempt, notify = first
        self.callbacks = [notify]


class RedisEventWriter:
    """Appends to logs, in the order of the calls. An append that was started is completed even if its caller is
    cancelled."""

    def __init__(
        self,
        server: RedisServer,
        keys: Keys,
        tokens: CallTokens,
        reader: EventReader,
        *,
        outage: float,
    ) -> None:
        """`reader` is notified of all events written."""
        self._reader = reader
        self._server = server
        self._keys = keys
        self._tokens = tokens
        self._outage = outage
        self._waiting: dict[str, list[_Append]] = {}
        self._written: dict[str, _Entry] = {}
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, int] = {}
        """Known lengths of the logs that this process has written to. A log that is shorter than that has lost
        events."""

    async def append(
        self, response_id: str, events: Sequence[bytes], *, last: bool, attempt: int
    ) -> bool:
        """Returns True once the events are stored, False if they are no longer needed."""
        future, set_outcome = outcome_future()
        self._add(response_id, events, last, attempt, set_outcome)
        outcome = await future
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome

    def open_log(self, response_id: str, notify: Notification, *, attempt: int) -> Append:
        """See `gateway.protocols.BufferedAppends`."""

        def append(events: Sequence[bytes], last: bool) -> None:
            self._add(response_id, events, last, attempt, notify)

        return append

    async def wait_until_written(self, response_id: str) -> None:
        """Returns when no events of that log are waiting to be written."""
        while True:
            if (waiting := self._waiting.get(response_id)) is not None:
                future, set_outcome = outcome_future()
                _, end, attempt, _ = waiting[-1]
                waiting.append(((), end, attempt, set_outcome))
            elif (written := self._written.get(response_id)) is not None:
                future, set_outcome = outcome_future()
                written.callbacks.append(set_outcome)
            else:
                return
            await future

    def forget(self, response_id: str) -> None:
        """Forget a deleted response. A later response with the same id is a different one."""
        self._known.pop(response_id, None)

    async def close(self) -> None:
        """Write all waiting events."""
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
                self._task = asyncio.create_task(self._write())
        while len(events) > _EVENTS:
            waiting.append((events[:_EVENTS], "0" if last else "", attempt, _ignore_outcome))
            events = events[_EVENTS:]
        waiting.append((events, "1" if last else "", attempt, notify))

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                self._written = {each.response_id: each for each in batch}
                token = self._tokens.next()
                error: StoreUnavailable | None = None
                lengths: Sequence[int] = ()
                try:
                    lengths = await through_outage(
                        lambda: self._send(batch, token),  # noqa: B023  # awaited here
                        seconds=self._outage,
                    )
                except StoreUnavailable as failure:
                    error = failure
                if error is None:
                    for each, length in zip(batch, lengths, strict=True):
                        self._finish(each, length)
                else:
                    for each in batch:
                        self._fail(each, error)
        except BaseException:
            # A programming error: do not let callers wait forever.
            broken = StoreUnavailable("The store failed to write events.")
            for each in tuple(self._written.values()):
                self._fail(each, broken)
            for response_id in tuple(self._waiting):
                self._fail(_Entry(response_id, ((), "", 0, _ignore_outcome)), broken)
            raise
        finally:
            self._task = None

    def _take(self) -> list[_Entry]:
        """The entries of the next call: one per log, because Redis remembers only the last token of a log."""
        waiting = self._waiting
        size = 0
        taken: list[_Entry] = []
        left: dict[str, list[_Append]] = {}
        for response_id, appends in waiting.items():
            if len(taken) == _ENTRIES or size > _BYTES:
                left[response_id] = appends
                continue
            entry = _Entry(response_id, appends[0])
            events = entry.events
            size += len(events[0]) if len(events) == 1 else sum(map(len, events))
            if len(appends) > 1:
                count = 1
                gathered = [*events]
                for events, end, attempt, notify in appends[1:]:
                    # Events that end a log can be accepted where others are not, so they are not merged.
                    if end != entry.end or attempt != entry.attempt:
                        break
                    if len(gathered) + len(events) > _EVENTS or size > _BYTES:
                        break
                    gathered += events
                    size += sum(map(len, events))
                    entry.callbacks.append(notify)
                    count += 1
                entry.events = gathered
                if count < len(appends):
                    left[response_id] = appends[count:]
            taken.append(entry)
        self._waiting = left
        return taken

    async def _send(self, batch: Sequence[_Entry], token: str) -> Sequence[int]:
        """The resulting length of each log, or the reason why it was not extended (see the script)."""
        if not self._server.cluster:
            return await self._send_some(batch, token)
        results = await asyncio.gather(
            *(self._send_some([each], token) for each in batch), return_exceptions=True
        )
        lengths: list[int] = []
        for each in results:
            if isinstance(each, BaseException):
                raise each
            lengths += each
        return lengths

    async def _send_some(self, batch: Sequence[_Entry], token: str) -> Sequence[int]:
        keys: list[str] = []
        arguments: list[Argument] = [token]
        for each in batch:
            keys += self._keys.log(each.response_id)
            known = self._known.get(each.response_id, 0)
            arguments += (known, each.end, len(each.events), each.attempt)
            arguments += each.events
        lengths: Sequence[int] = await self._server.run(scripts.APPEND, keys, arguments)
        return lengths

    def _finish(self, entry: _Entry, length: int) -> None:
        """Handle the answer of Redis."""
        response_id = entry.response_id
        self._written.pop(response_id, None)
        if length == _LOST:
            self._fail(entry, StoreUnavailable("The store has lost events of this response."))
            return
        added = length >= 0
        if added:
            self._known[response_id] = length
            self._reader.deliver(response_id, entry.events, length, entry.end == "1")
            if entry.end == "1":
                del self._known[response_id]
        else:
            self._forget_length(response_id)
        notify_all(entry.response_id, entry.callbacks, added)

    def _fail(self, entry: _Entry, error: StoreUnavailable) -> None:
        """Fail the entry and what waits behind it in the same log: writing that would leave a gap."""
        self._written.pop(entry.response_id, None)
        self._forget_length(entry.response_id)
        behind = self._waiting.pop(entry.response_id, ())
        notify_all(entry.response_id, [*entry.callbacks, *(each[-1] for each in behind)], error)

    def _forget_length(self, response_id: str) -> None:
        self._known.pop(response_id, None)
        self._reader.release(response_id)


def _ignore_outcome(outcome: bool | StoreUnavailable) -> None:
    """Callback of all parts of a large append but the last: ignores the outcome."""
