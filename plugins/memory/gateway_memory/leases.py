"""Leases of background work, and requests to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection


class LeaseTable:
    """Leases of one process' responses. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str, tuple[str, float]] = {}
        self._readers: list[asyncio.Queue[str]] = []

    def lease(self, holder: str, response_ids: Collection[str], seconds: float) -> None:
        """Lease the responses to `holder` for `seconds`. Valid leases of other holders are kept: a late owner does
        not take back what was taken over."""
        now = self._clock()
        for response_id in response_ids:
            owner, until = self._held.get(response_id, (holder, now))
            if owner == holder or until <= now:
                self._held[response_id] = (holder, now + seconds)

    def release(self, holder: str, response_id: str) -> None:
        if self._held.get(response_id, ("", 0))[0] == holder:
            del self._held[response_id]

    def forget(self, response_id: str) -> None:
        """Remove the lease of a response that was deleted or has ended."""
        self._held.pop(response_id, None)

    def take(
        self, holder: str, seconds: float, limit: int, unfinished: Callable[[str], bool]
    ) -> list[str]:
        """Lease to `holder` up to `limit` unfinished responses whose lease has expired. Expired leases of other
        responses are dropped."""
        now = self._clock()
        taken: list[str] = []
        for response_id, (_, until) in list(self._held.items()):
            if until > now:
                continue
            if not unfinished(response_id):
                del self._held[response_id]
            elif len(taken) < limit:
                self._held[response_id] = (holder, now + seconds)
                taken.append(response_id)
        return taken

    def request_cancel(self, response_id: str) -> None:
        for reader in self._readers:
            reader.put_nowait(response_id)

    async def cancel_requests(self) -> AsyncGenerator[str, None]:
        requests: asyncio.Queue[str] = asyncio.Queue()
        self._readers.append(requests)
        try:
            while True:
                yield await requests.get()
        finally:
            self._readers.remove(requests)
