"""Waiting for a condition. A test that waits by itself guesses how fast the machine is; these give a slow one two minutes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0
"""How long a condition may take. It is a bound against waiting for ever, not a claim about speed."""
INTERVAL = 0.02


def wait_until(holds: Callable[[], T], what: str = "", seconds: float = SECONDS) -> T:
    """Call `holds` until its result is true, and return that result.

    Raises `AssertionError`, which names `what` was waited for, after `seconds`. `holds` may raise `AssertionError` itself:
    that means not yet, and the last one is the error's cause.
    """
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end
        cause: AssertionError | None = None
        try:
            found = holds()
        except AssertionError as error:
            cause = error
        else:
            if found:
                return found
        if late:
            raise AssertionError(_told(holds, what, seconds)) from cause
        time.sleep(INTERVAL)


async def wait_until_async(
    holds: Callable[[], T | Awaitable[T]], what: str = "", seconds: float = SECONDS
) -> T:
    """As `wait_until`, on the event loop. `holds` may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end
        cause: AssertionError | None = None
        try:
            given = holds()
            found = await given if inspect.isawaitable(given) else given
        except AssertionError as error:
            cause = error
        else:
            if found:
                return found
        if late:
            raise AssertionError(_told(holds, what, seconds)) from cause
        await asyncio.sleep(INTERVAL)


def _told(holds: Callable[[], object], what: str, seconds: float) -> str:
    return f"not within {seconds:g} s: {what or getattr(holds, '__qualname__', holds)}"
