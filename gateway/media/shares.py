"""Limiting the concurrent work of each owner."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class OwnerShares:
    """Limits the concurrent work of each owner."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, owner: str) -> asyncio.Semaphore:
        """The semaphore of an owner."""
        found = self._semaphores.get(owner)
        if found is None:
            found = self._semaphores[owner] = asyncio.Semaphore(self._at_once)
        return found
