"""Sinks: functions that receive output. Awaiting their result applies back-pressure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeAlias, TypeVar

logger = logging.getLogger("gateway.generation.sinks")

OutT = TypeVar("OutT")
ByteSink: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Receives bytes that are ready to be sent. Awaiting its result applies back-pressure."""

MAX_HELD_SECONDS: Final = 15.0
"""Maximum time for which the start of a stream is held back for an engine that may refuse the request."""


class Accepted:
    """The result of a sink that has accepted everything, so that there is nothing to wait for.

    This is the result for nearly every token. Awaiting it is cheap, and comparing with `ACCEPTED` instead is cheaper. A
    sink that is a coroutine function would create a coroutine each time.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


ACCEPTED = Accepted()


class SharedSink:
    """A sink to which several tasks write concurrently. Parts that arrive while another is being sent are sent together
    next."""

    __slots__ = ("_lock", "_sink", "_waiting")

    def __init__(self, sink: Callable[[bytes], Awaitable[None]]) -> None:
        self._sink = sink
        self._lock = asyncio.Lock()
        self._waiting: list[bytes] = []

    async def __call__(self, part: bytes) -> None:
        """Send `part`. If this is cancelled while the part waits, it is sent with the next part, or returned by
        `take`."""
        self._waiting.append(part)
        async with self._lock:
            if parts := self.take():
                await self._sink(parts)

    def take(self) -> bytes:
        """Remove and return the parts that are still waiting to be sent."""
        parts, self._waiting = b"".join(self._waiting), []
        return parts


class HeldSink(Generic[OutT]):
    """A sink that holds its parts back until the engine has given its first output.

    Until then, the answer can be begun again with another model, or be replaced by an error. The generation releases
    the sink and then writes to the underlying sink directly.
    """

    __slots__ = ("_held", "_releasing", "_sink", "_task", "released")

    def __init__(self, sink: Callable[[OutT], Awaitable[None]]) -> None:
        self._sink = sink
        self._held: list[OutT] | None = []
        """The parts that are held back; None after all were sent."""
        self._releasing = asyncio.Lock()
        self.released = False
        """Whether a part may have been sent."""

    def __call__(self, out: OutT) -> Awaitable[None]:
        if self._held is None:
            return self._sink(out)
        self._held.append(out)
        return ACCEPTED

    async def release(self) -> Callable[[OutT], Awaitable[None]]:
        """Send the parts that are held back. Returns the underlying sink."""
        self.released = True
        async with self._releasing:
            # Parts that arrive while this waits for a slow client follow in their order.
            while self._held:
                await self._sink(self._held.pop(0))
            self._held = None
        return self._sink

    @property
    def below(self) -> Callable[[OutT], Awaitable[None]]:
        """The underlying sink."""
        return self._sink

    def take(self) -> list[OutT]:
        """Remove and return the parts that are held back."""
        held, self._held = self._held or [], []
        return held

    @contextmanager
    def released_after(self, seconds: float) -> Iterator[None]:
        """Return a context in which the sink is released after `seconds`, unless it was released before."""
        timer = asyncio.get_running_loop().call_later(seconds, self._begin_release)
        try:
            yield
        finally:
            timer.cancel()

    def _begin_release(self) -> None:
        if not self.released:
            self.released = True
            self._task = asyncio.create_task(self._release())

    async def _release(self) -> None:
        try:
            await self.release()
        except Exception:
            # The next write to the sink fails in the same way.
            logger.debug("the start of a stream could not be sent", exc_info=True)
