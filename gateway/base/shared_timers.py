"""Cheap timers that every request sets and that rarely fire: its deadline, and the limit of a silence.

The event loop's own timers are exact, but each takes half a KiB and some microseconds to start and to stop. The
timers of this module that are due at about the same time share one timer of the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from typing import Final, TypeAlias

_SHARE: Final = 64
"""A timer may fire late by at most 1/`_SHARE` of its delay."""

_Key: TypeAlias = tuple[float, int]


class SharedTimer:
    """A scheduled call, returned by `SharedTimers.call_later`."""

    __slots__ = ("_together", "callback")

    def __init__(self, callback: Callable[[], None], together: set[SharedTimer]) -> None:
        self.callback = callback
        self._together = together

    def cancel(self) -> None:
        """Cancel the call. Does nothing if it was made already."""
        self._together.discard(self)


class SharedTimers:
    """The shared timers of one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: dict[_Key, set[SharedTimer]] = {}

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SharedTimer:
        """Call `callback` after `seconds`, never early and at most 2 % late, in an empty context. Must be called on
        the event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._due = loop, {}
        step = 2.0 ** math.floor(math.log2(max(seconds, 0.001) / _SHARE))
        key = step, math.ceil((loop.time() + seconds) / step)
        together = self._due.get(key)
        if together is None:
            together = self._due[key] = set()
            loop.call_at(key[0] * key[1], self._ring, key, context=Context())
        timer = SharedTimer(callback, together)
        together.add(timer)
        return timer

    def _ring(self, key: _Key) -> None:
        together = self._due.pop(key, set())
        while together:
            timer = together.pop()
            try:
                timer.callback()
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"the timer {timer.callback} failed", "exception": error}
                )
