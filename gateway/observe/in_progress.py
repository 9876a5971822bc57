"""Tracks requests in progress, so that a resource can be closed once all requests that may use it have ended."""

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
        """Count a request that begins. Pass the result to `end`."""
        epoch = self._current
        epoch.count += 1
        return epoch

    def end(self, epoch: _Epoch) -> None:
        """Count the end of the request for which `begin` returned `epoch`."""
        epoch.count -= 1
        if epoch.count == 0 and epoch.empty is not None:
            epoch.empty.set()

    async def ended(self) -> None:
        """Wait until all requests that are in progress now have ended. Requests that begin later do not matter."""
        last, self._current = self._current, _Epoch()
        self._earlier = [each for each in (*self._earlier, last) if each.count]
        for epoch in tuple(self._earlier):
            if epoch.count:
                epoch.empty = epoch.empty or asyncio.Event()
                await epoch.empty.wait()
