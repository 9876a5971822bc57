"""What has been read for requests that contain it again: images, sounds, documents."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

ValueT = TypeVar("ValueT")


class MediaCache(Generic[ValueT]):
    """Least recently used values are dropped when their total size exceeds `max_bytes`.

    Concurrent calls with one key make its value once. The making is cancelled when all who wait for it are.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[ValueT], int]) -> None:
        """`size_of` tells the size of a value in bytes."""
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._bytes = 0
        self._values: OrderedDict[Hashable, ValueT] = OrderedDict()
        self._making: dict[Hashable, _Making[ValueT]] = {}

    @property
    def size(self) -> int:
        """Of the values, in bytes."""
        return self._bytes

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, ValueT]]) -> ValueT:
        """The value of a key, which `make` makes if it is not there. Raises what `make` raises."""
        if (found := self._values.get(key)) is not None:
            self._values.move_to_end(key)
            return found
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.ensure_future(make()))
            making.task.add_done_callback(lambda task: self._store(key, task))
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting and not making.task.done():
                self._forget(key, making.task)
                making.task.cancel()

    def _store(self, key: Hashable, task: asyncio.Future[ValueT]) -> None:
        self._forget(key, task)
        if not task.cancelled() and task.exception() is None:
            self._keep(key, task.result())

    def _forget(self, key: Hashable, task: asyncio.Future[ValueT]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]

    def _keep(self, key: Hashable, value: ValueT) -> None:
        size = self._size_of(value)
        if size > self._max_bytes or key in self._values:
            return
        self._values[key] = value
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, oldest = self._values.popitem(last=False)
            self._bytes -= self._size_of(oldest)


class _Making(Generic[ValueT]):
    """A value that is being made, and how many calls wait for it."""

    def __init__(self, task: asyncio.Future[ValueT]) -> None:
        self.task = task
        self.waiting = 0
