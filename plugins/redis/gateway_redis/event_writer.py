"""Writing events: what all responses of this process have ready at once goes to Redis in one call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gateway.errors import StoreUnavailable
from gateway.protocols import Append, Heard
from gateway_redis import scripts
from gateway_redis.event_reader import EventReader
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, Server, through_outage
from gateway_redis.tokens import Tokens

logger = logging.getLogger("gateway_redis")

_ENTRIES = 512
_BYTES = 4 << 20
"""The most that one call carries, so that Redis is never busy for long."""

_EVENTS = 1000
"""Events in one entry: Lua's stack ends at a few thousand values."""

_LOST = -2


_End: TypeAlias = Literal["1", "0", ""]
"""Whether a log ends: with these events, with later ones of the same call, or not now."""
_Append: TypeAlias = tuple[Sequence[bytes], _End, int, Heard]
"""Events that wait to be written to one log, by which attempt they were made, and who is to hear of it."""


class _Entry:
    """What one call adds to one log: one append, or several that came while the call before was under way."""

    __slots__ = ("attempt", "end", "events", "heard", "response_id")

    def __init__(self, response_id: str, first: _Append) -> None:
        self.response_id = response_id
        self.events, self.end, self.attempt, heard = first
        self.heard = [heard]


class EventWriter:
    """Appends to logs, in the order of the calls. An append that was begun is made, whether or not its caller stays."""

    def __init__(
        self, server: Server, keys: Keys, tokens: Tokens, reader: EventReader, *, outage: float
    ) -> None:
        """`reader` is told what is written."""
        self._reader = reader
        self._server = server
        self._keys = keys
        self._tokens = tokens
        self._outage = outage
        self._waiting: dict[str, list[_Append]] = {}
        self._written: dict[str, _Entry] = {}
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, int] = {}
        """How many events a log has, where this process has written to it: it must not have fewer later."""

    async def append(
        self, response_id: str, events: Sequence[bytes], *, last: bool, attempt: int
    ) -> bool:
        """Returns when they are stored, or not needed any more: then False."""
        heard, hear = _hearing()
        self._add(response_id, events, last, attempt, hear)
        outcome = await heard
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        return outcome

    def open_log(self, response_id: str, heard: Heard, *, attempt: int) -> Append:
        """See `gateway.protocols.AppendsSoon`."""

        def append(events: Sequence[bytes], last: bool) -> None:
            self._add(response_id, events, last, attempt, heard)

        return append

    async def settled(self, response_id: str) -> None:
        """Returns when nothing more waits to be written to that log."""
        while True:
            if (waiting := self._waiting.get(response_id)) is not None:
                heard, hear = _hearing()
                _, end, attempt, _ = waiting[-1]
                waiting.append(((), end, attempt, hear))
            elif (written := self._written.get(response_id)) is not None:
                heard, hear = _hearing()
                written.heard.append(hear)
            else:
                return
            await heard

    def forget(self, response_id: str) -> None:
        """The response is gone; what may come under its id is another."""
        self._known.pop(response_id, None)

    async def close(self) -> None:
        """Write what waits."""
        if self._task is not None:
            await self._task

    def _add(
        self, response_id: str, events: Sequence[bytes], last: bool, attempt: int, heard: Heard
    ) -> None:
        waiting = self._waiting.get(response_id)
        if waiting is None:
            waiting = self._waiting[response_id] = []
            if self._task is None:
                self._task = asyncio.create_task(self._write())
        while len(events) > _EVENTS:
            waiting.append((events[:_EVENTS], "0" if last else "", attempt, _deaf))
            events = events[_EVENTS:]
        waiting.append((events, "1" if last else "", attempt, heard))

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
            # A mistake of ours: nobody shall wait for ever.
            broken = StoreUnavailable("The store failed to write events.")
            for each in tuple(self._written.values()):
                self._fail(each, broken)
            for response_id in tuple(self._waiting):
                self._fail(_Entry(response_id, ((), "", 0, _deaf)), broken)
            raise
        finally:
            self._task = None

    def _take(self) -> list[_Entry]:
        """What goes in the next call: of each log one entry, since Redis remembers the last one's token."""
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
                for events, end, attempt, heard in appends[1:]:
                    # What ends a log may be written where nothing else may.
                    if end != entry.end or attempt != entry.attempt:
                        break
                    if len(gathered) + len(events) > _EVENTS or size > _BYTES:
                        break
                    gathered += events
                    size += sum(map(len, events))
                    entry.heard.append(heard)
                    count += 1
                entry.events = gathered
                if count < len(appends):
                    left[response_id] = appends[count:]
            taken.append(entry)
        self._waiting = left
        return taken

    async def _send(self, batch: Sequence[_Entry], token: str) -> Sequence[int]:
        """How many events each log has then; or why it has no more (see the script)."""
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
        """Redis has answered."""
        response_id = entry.response_id
        self._written.pop(response_id, None)
        if length == _LOST:
            self._fail(entry, StoreUnavailable("The store has lost events of this response."))
            return
        added = length >= 0
        if added:
            self._known[response_id] = length
            self._reader.hand_in(response_id, entry.events, length, entry.end == "1")
            if entry.end == "1":
                del self._known[response_id]
        else:
            self._let_go(response_id)
        _tell(entry.response_id, entry.heard, added)

    def _fail(self, entry: _Entry, error: StoreUnavailable) -> None:
        """What waits behind it is not written: there would be a gap."""
        self._written.pop(entry.response_id, None)
        self._let_go(entry.response_id)
        behind = self._waiting.pop(entry.response_id, ())
        _tell(entry.response_id, [*entry.heard, *(each[-1] for each in behind)], error)

    def _let_go(self, response_id: str) -> None:
        self._known.pop(response_id, None)
        self._reader.let_go(response_id)


def _hearing() -> tuple[asyncio.Future[bool | StoreUnavailable], Heard]:
    """What comes, and what hears it, unless nobody waits any more."""
    coming: asyncio.Future[bool | StoreUnavailable] = asyncio.get_running_loop().create_future()

    def hear(outcome: bool | StoreUnavailable) -> None:
        if not coming.done():
            coming.set_result(outcome)

    return coming, hear


def _tell(response_id: str, hearers: Sequence[Heard], outcome: bool | StoreUnavailable) -> None:
    for heard in hearers:
        try:
            heard(outcome)
        except Exception:
            # Whoever breaks at what it hears must not end the writing of all others.
            logger.exception("the events of %s cannot be told", response_id)


def _deaf(outcome: bool | StoreUnavailable) -> None:
    """The last part of a large append is heard of."""
