"""Writing events: what all responses of this process have ready at once goes to Redis in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gateway.errors import StoreUnavailable
from gateway_redis import scripts
from gateway_redis.event_reader import EventReader
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, Server, through_outage
from gateway_redis.tokens import Tokens

_ENTRIES = 512
_BYTES = 4 << 20
"""The most that one call carries, so that Redis is never busy for long."""

_EVENTS = 1000
"""Events in one entry: Lua's stack ends at a few thousand values."""

_LOST = -2


_End: TypeAlias = Literal["1", "0", ""]
"""Whether a log ends: with these events, with later ones of the same call, or not now."""


class _Append:
    """Events that wait to be written to one log."""

    __slots__ = ("added", "done", "end", "events", "lost", "response_id", "size", "token")

    def __init__(self, response_id: str, events: Sequence[bytes], end: _End, token: str) -> None:
        self.response_id = response_id
        self.events = events
        self.end = end
        self.token = token
        self.lost = False
        self.added = True
        self.size = len(events[0]) if len(events) == 1 else sum(map(len, events))
        self.done: asyncio.Future[StoreUnavailable | None] = (
            asyncio.get_running_loop().create_future()
        )

    def finish(self, error: StoreUnavailable | None) -> None:
        if not self.done.done():
            self.done.set_result(error)


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
        self._waiting: list[_Append] = []
        self._written: list[_Append] = []
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, int] = {}
        """How many events a log has, where this process has written to it: it must not have fewer later."""

    async def append(self, response_id: str, events: Sequence[bytes], *, last: bool) -> bool:
        """Returns when they are stored, or not needed any more: then False."""
        end: _End = "1" if last else ""
        while len(events) > _EVENTS:
            if not await self._append(response_id, events[:_EVENTS], "0" if last else ""):
                return False
            events = events[_EVENTS:]
        return await self._append(response_id, events, end)

    async def _append(self, response_id: str, events: Sequence[bytes], end: _End) -> bool:
        each = _Append(response_id, events, end, self._tokens.next())
        self._waiting.append(each)
        if self._task is None:
            self._task = asyncio.create_task(self._write())
        try:
            error = await each.done
        except asyncio.CancelledError:
            # It is written all the same: whoever asks later must be able to wait for that.
            if each.done.cancelled():
                each.done = asyncio.get_running_loop().create_future()
            raise
        if error is not None:
            raise error
        return each.added

    async def settled(self, response_id: str) -> None:
        """Returns when nothing more waits to be written to that log."""
        for each in (*self._written, *self._waiting):
            if each.response_id == response_id:
                await asyncio.wait((each.done,))

    def forget(self, response_id: str) -> None:
        """The response is gone; what may come under its id is another."""
        self._known.pop(response_id, None)

    async def close(self) -> None:
        """Write what waits."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._written = self._take()
                error: StoreUnavailable | None = None
                try:
                    await through_outage(lambda: self._send(batch), seconds=self._outage)  # noqa: B023  # awaited here
                except StoreUnavailable as failure:
                    error = failure
                for each in batch:
                    if each.lost:
                        each.finish(StoreUnavailable("The store has lost events of this response."))
                        continue
                    if error is not None:
                        self._let_go(each.response_id)
                    each.finish(error)
        except BaseException:
            # A mistake of ours: nobody shall wait for ever.
            for each in (*self._written, *self._waiting):
                each.finish(StoreUnavailable("The store failed to write events."))
            self._waiting = []
            raise
        finally:
            self._written = []
            self._task = None

    def _take(self) -> list[_Append]:
        """What goes in the next call: of each log one append, since Redis remembers the last one's token."""
        waiting = self._waiting
        size = 0
        taken: list[_Append] = []
        left: list[_Append] = []
        logs: set[str] = set()
        for at, each in enumerate(waiting):
            if len(taken) == _ENTRIES or (taken and size + each.size > _BYTES):
                left += waiting[at:]
                break
            if each.response_id in logs:
                left.append(each)
                continue
            logs.add(each.response_id)
            size += each.size
            taken.append(each)
        self._waiting = left
        return taken

    async def _send(self, batch: Sequence[_Append]) -> None:
        if self._server.cluster:
            results = await asyncio.gather(
                *(self._send_some([each]) for each in batch), return_exceptions=True
            )
            failed = [each for each in results if isinstance(each, BaseException)]
            if failed:
                raise failed[0]
        else:
            await self._send_some(batch)

    async def _send_some(self, batch: Sequence[_Append]) -> None:
        keys: list[str] = []
        arguments: list[Argument] = []
        batch = [each for each in batch if not each.lost]
        for each in batch:
            keys += self._keys.log(each.response_id)
            known = self._known.get(each.response_id, 0)
            arguments += (each.token, known, each.end, len(each.events))
            arguments += each.events
        for each, length in zip(
            batch, await self._server.run(scripts.APPEND, keys, arguments), strict=True
        ):
            each.lost = length == _LOST
            if length < 0:
                each.added = False
                self._let_go(each.response_id)
                continue
            self._known[each.response_id] = length
            self._reader.hand_in(each.response_id, each.events, length, each.end == "1")
            if each.end == "1":
                del self._known[each.response_id]

    def _let_go(self, response_id: str) -> None:
        self._known.pop(response_id, None)
        self._reader.let_go(response_id)
