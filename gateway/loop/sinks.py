"""Sinks: consumers of output. Awaiting what a sink returns applies back-pressure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar

OutT = TypeVar("OutT")


class Accepted:
    """Returned by a sink that has accepted everything: there is nothing to wait for.

    This is the result for nearly every token. Awaiting it is cheap, and comparing with `ACCEPTED` instead is free; a
    sink that is a coroutine function creates a coroutine each time.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


ACCEPTED = Accepted()


class HeldSink(Generic[OutT]):
    """A sink that keeps what it gets until the engine has given its first output.

    Until then, the answer can be begun anew, by another model. The generation releases it, and then writes to the sink
    below directly.
    """

    __slots__ = ("_held", "_sink")

    def __init__(self, sink: Callable[[OutT], Awaitable[None]]) -> None:
        self._sink = sink
        self._held: list[OutT] | None = []
        """None once it is released."""

    @property
    def released(self) -> bool:
        """Whether something may have been sent."""
        return self._held is None

    def __call__(self, out: OutT) -> Awaitable[None]:
        if self._held is None:
            return self._sink(out)
        self._held.append(out)
        return ACCEPTED

    async def release(self) -> Callable[[OutT], Awaitable[None]]:
        """Send what is held. Returns the sink below."""
        held, self._held = self._held, None
        for out in held or ():
            await self._sink(out)
        return self._sink
