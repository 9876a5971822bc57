"""Sinks: consumers of output. Awaiting what a sink returns applies back-pressure."""

from __future__ import annotations

from collections.abc import Generator


class Accepted:
    """Returned by a sink that has accepted everything: there is nothing to wait for.

    This is the result for nearly every token. Awaiting it is cheap, and comparing with `ACCEPTED` instead is free; a
    sink that is a coroutine function creates a coroutine each time.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


ACCEPTED = Accepted()
