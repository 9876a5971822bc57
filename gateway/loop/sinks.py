"""Handing on what is made: a sink takes what is ready at once, and awaiting what it returns is the back-pressure."""

from __future__ import annotations

from collections.abc import Generator


class Taken:
    """What a sink returns that has taken all it was given: there is nothing to wait for.

    Nearly every token ends here. To await it costs next to nothing, and whoever has tokens to hand on compares with `TAKEN`
    instead, which costs nothing; a sink that is a coroutine function makes a coroutine each time.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


TAKEN = Taken()
