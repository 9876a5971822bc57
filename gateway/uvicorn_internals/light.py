"""Small stand-ins for what uvicorn holds for each connection and each request.

An open stream holds all of these as long as it lasts. uvicorn's own are rarely used, and take about 3 KiB.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class LightEvent:
    """Like `asyncio.Event`, without a queue as long as nobody waits."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = _NOBODY

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> bool:
        if self._is_set:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [*self._waiting, future]
        try:
            await future
        finally:
            self._waiting = [each for each in self._waiting if each is not future] or _NOBODY
        return True


_NOBODY: list[asyncio.Future[None]] = []
"""Of all events for which nobody waits. It is never changed."""


class LightFlowControl:
    """Like uvicorn's `FlowControl`."""

    __slots__ = ("_transport", "_writable", "read_paused", "times_resumed", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self.times_resumed = 0
        """How often the client has read enough for more to be written."""
        self._writable: LightEvent | None = None
        """Created when the client is first slow to read."""

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable.wait()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            if self._writable is None:
                self._writable = LightEvent()
            self._writable.clear()

    def resume_writing(self) -> None:
        if self.write_paused:
            self.write_paused = False
            self.times_resumed += 1
            if self._writable is not None:
                self._writable.set()


class Pipeline(list[T]):
    """The few methods of `collections.deque` that a queue of requests needs. It is nearly always empty."""

    __slots__ = ()

    def appendleft(self, item: T) -> None:
        self.insert(0, item)

    def popleft(self) -> T:
        return self.pop(0)
