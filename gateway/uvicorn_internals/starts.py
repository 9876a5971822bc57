"""Requests that come at once are begun a few at a time, so that those that run are not held up by all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Final

AT_ONCE: Final = 8
"""Requests that are begun in one turn of the event loop. Each takes up to half a millisecond before it waits for its model."""


class RequestStarts:
    """Begins requests in the order in which they came, `AT_ONCE` in each turn of the event loop.

    Without it, a thousand requests that come at once are all begun in the same turn: the first of them waits for its first token, and
    each running stream for its next, until the last is begun.
    """

    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = AT_ONCE
        """How many may still be begun in this turn."""
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, start: Callable[[], None]) -> None:
        """Call `start`, now or in a later turn of the event loop. Called on the event loop."""
        if self._left == AT_ONCE:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            start()
        else:
            # In the context of its connection: that of `_next_turn` is of another.
            self._waiting.append(partial(copy_context().run, start))

    def begin_all(self) -> None:
        """Begin all that wait, in their order: the server is about to refuse what comes."""
        while self._waiting:
            self._waiting.popleft()()

    def _next_turn(self) -> None:
        self._left = AT_ONCE
        waiting = self._waiting
        for _ in range(min(AT_ONCE, len(waiting))):
            self.begin(waiting.popleft())
