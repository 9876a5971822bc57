"""Sinks: consumers of output. Awaiting what a sink returns applies back-pressure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeAlias, TypeVar

logger = logging.getLogger("gateway.loop.sinks")

OutT = TypeVar("OutT")
ByteSink: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Takes bytes that are ready. Awaiting what it returns is the back-pressure."""

MAX_HELD_SECONDS: Final = 15.0
"""Maximum time for which the start of a stream is held back for an engine that may refuse the request."""


class Accepted:
    """Returned by a sink that has accepted everything: there is nothing to wait for.

    This is the result for nearly every token. Awaiting it is cheap, and comparing with `ACCEPTED` instead is free; a
    sink that is a coroutine function creates a coroutine each time.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


ACCEPTED = Accepted()


class SharedSink:
    """A sink for tasks that write at once. What comes while a part is being sent is sent with the next one."""

    __slots__ = ("_lock", "_sink", "_waiting")

    def __init__(self, sink: Callable[[bytes], Awaitable[None]]) -> None:
        self._sink = sink
        self._lock = asyncio.Lock()
        self._waiting: list[bytes] = []

    async def __call__(self, part: bytes) -> None:
        """Send `part`. If that is cancelled before its turn, the next part follows it, or `take` returns it."""
        self._waiting.append(part)
        async with self._lock:
            if parts := self.take():
                await self._sink(parts)

    def take(self) -> bytes:
        """The parts that still wait for their turn, which are then no longer sent."""
        parts, self._waiting = b"".join(self._waiting), []
        return parts


class HeldSink(Generic[OutT]):
    """A sink that keeps what it gets until the engine has given its first output.

    Until then, the answer can be begun anew, by another model, or be an error. The generation releases it, and then
    writes to the sink below directly.
    """

    __slots__ = ("_held", "_releasing", "_sink", "_task", "released")

    def __init__(self, sink: Callable[[OutT], Awaitable[None]]) -> None:
        self._sink = sink
        self._held: list[OutT] | None = []
        """None once all of it is sent."""
        self._releasing = asyncio.Lock()
        self.released = False
        """Whether something may have been sent."""

    def __call__(self, out: OutT) -> Awaitable[None]:
        if self._held is None:
            return self._sink(out)
        self._held.append(out)
        return ACCEPTED

    async def release(self) -> Callable[[OutT], Awaitable[None]]:
        """Send what is held. Returns the sink below."""
        self.released = True
        async with self._releasing:
            # What comes while this waits for a slow client follows in its order.
            while self._held:
                await self._sink(self._held.pop(0))
            self._held = None
        return self._sink

    @property
    def below(self) -> Callable[[OutT], Awaitable[None]]:
        """The sink below."""
        return self._sink

    def take(self) -> list[OutT]:
        """What is held, which is then no longer sent."""
        held, self._held = self._held or [], []
        return held

    @contextmanager
    def released_after(self, seconds: float) -> Iterator[None]:
        """Within the context, the sink is released after `seconds`, unless it was before."""
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
            # What writes to the sink next has the same failure.
            logger.debug("the start of a stream could not be sent", exc_info=True)
