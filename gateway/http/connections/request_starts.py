"""An ASGI application that starts concurrent requests a few at a time, so that a burst does not delay running
requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

from litestar.types import ASGIApp

PER_ITERATION: Final = 8
"""Number of requests that are started in one iteration of the event loop. Each takes up to half a millisecond before it
waits for its model."""


class RequestStarts:
    """Starts requests in the order of their arrival, `PER_ITERATION` in each iteration of the event loop.

    Otherwise a thousand concurrent requests would all be started in one iteration. Until the last has started, the
    first would wait for its first token, and each running stream for its next one.
    """

    __slots__ = ("_app", "_left", "_waiting")

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._left = PER_ITERATION
        """How many requests may still be started in this iteration."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        if self._left == PER_ITERATION:
            asyncio.get_running_loop().call_soon(self._next_iteration)
        if not self._left:
            return self._begin_later(scope, receive, send)
        self._left -= 1
        return self._app(scope, receive, send)

    def begin_all(self) -> None:
        """Start all waiting requests in the next iteration, because the server is about to refuse new ones."""
        self._begin(len(self._waiting))

    async def _begin_later(self, scope: Any, receive: Any, send: Any) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        await granted
        await self._app(scope, receive, send)

    def _next_iteration(self) -> None:
        if self._waiting:
            self._left = 0  # requests that arrive in this iteration start after the waiting ones
            self._begin(min(PER_ITERATION, len(self._waiting)))
            asyncio.get_running_loop().call_soon(self._next_iteration)
        else:
            self._left = PER_ITERATION

    def _begin(self, count: int) -> None:
        for _ in range(count):
            granted = self._waiting.popleft()
            if not granted.done():  # its task may have been cancelled
                granted.set_result(None)
