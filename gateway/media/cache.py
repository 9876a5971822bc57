"""Images and sounds that have been read, for requests that contain them again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from gateway.protocols import Media


class MediaCache:
    """Least recently used media are dropped when their total size exceeds `max_bytes`.

    Concurrent calls with one key make its media once. The making is cancelled when all who wait for it are.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._media: OrderedDict[Hashable, Media] = OrderedDict()
        self._making: dict[Hashable, _Making] = {}

    @property
    def size(self) -> int:
        """Of the media, in bytes."""
        return self._bytes

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Media]]) -> Media:
        """The media of a key, which `make` makes if they are not there. Raises what `make` raises."""
        if (found := self._media.get(key)) is not None:
            self._media.move_to_end(key)
            return found
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.ensure_future(make()))
            making.task.add_done_callback(lambda task: self._made(key, task))
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting and not making.task.done():
                self._forget(key, making.task)
                making.task.cancel()

    def _made(self, key: Hashable, task: asyncio.Future[Media]) -> None:
        self._forget(key, task)
        if not task.cancelled() and task.exception() is None:
            self._keep(key, task.result())

    def _forget(self, key: Hashable, task: asyncio.Future[Media]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]

    def _keep(self, key: Hashable, media: Media) -> None:
        size = len(media.data)
        if size > self._max_bytes or key in self._media:
            return
        self._media[key] = media
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, oldest = self._media.popitem(last=False)
            self._bytes -= len(oldest.data)


class _Making:
    """Media that are being made, and how many calls wait for them."""

    def __init__(self, task: asyncio.Future[Media]) -> None:
        self.task = task
        self.waiting = 0
