"""Requests in progress, for what may be closed when all requests have ended that could use it."""

from __future__ import annotations

import asyncio


class _Epoch:
    """Requests that began between two calls of `RequestsInProgress.ended`."""

    __slots__ = ("count", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.empty: asyncio.Event | None = None
        """Set when the last request has ended. None until a caller waits for it."""


class RequestsInProgress:
    """Counts the requests in progress."""

    def __init__(self) -> None:
        self._current = _Epoch()
        self._earlier: list[_Epoch] = []

    def begin(self) -> _Epoch:
        """A request begins. The result is for `end`."""
        epoch = self._current
        epoch.count += 1
        return epoch

    def end(self, epoch: _Epoch) -> None:
        """The request that `begin` returned `epoch` for has ended."""
        epoch.count -= 1
        if epoch.count == 0 and epoch.empty is not None:
            epoch.empty.set()

    async def ended(self) -> None:
        """Wait until all requests have ended that are in progress now. Later ones do not count."""
        last, self._current = self._current, _Epoch()
        self._earlier = [each for each in (*self._earlier, last) if each.count]
        for epoch in tuple(self._earlier):
            if epoch.count:
                epoch.empty = epoch.empty or asyncio.Event()
                await epoch.empty.wait()
