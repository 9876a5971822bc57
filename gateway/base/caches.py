"""Caches that keep the most recently used values."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeAlias, TypeVar

from gateway.base.shares import current_owner

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class _Entry(Generic[ValueT]):
    __slots__ = ("owner", "size", "used", "value")

    def __init__(self, value: ValueT, size: int, owner: str) -> None:
        self.value = value
        self.size = size
        self.owner = owner
        self.used = 0


class _Owned(Generic[KeyT]):
    """The keys and total size of one owner's values in a cache."""

    __slots__ = ("keys", "size")

    def __init__(self) -> None:
        self.keys: OrderedDict[KeyT, None] = OrderedDict()
        """Keys in order of use, the least recently used first."""
        self.size = 0


_Rank: TypeAlias = tuple[int, int, str]
"""Sort key of an owner: its number or total size of values, negated; when its oldest value was last used; its name."""


class LruCache(Generic[KeyT, ValueT]):
    """A thread-safe cache of at most `most` values with a total size of at most `max_size`. The newest value always
    stays.

    If there are too many, the least recently used value of the owner (`gateway.base.shares`) with the most values is
    dropped: an owner never loses a value to an owner that has more. The time of a request can reveal whether a value
    is cached. The keys of values that depend on secrets should therefore contain the owner.
    """

    def __init__(self, most: int = sys.maxsize, *, max_size: int = sys.maxsize) -> None:
        self._most = most
        self._max_size = max_size
        self._entries: dict[KeyT, _Entry[ValueT]] = {}
        self._owners: dict[str, _Owned[KeyT]] = {}
        self._size = 0
        self._uses = 0
        bounds = ((False, most), (True, max_size))
        self._ranks: dict[bool, list[_Rank]] = {
            by_size: [] for by_size, bound in bounds if bound != sys.maxsize
        }
        """Two heaps of owners, compared by total size (True) or by number of values (False). The first owner is the
        next to lose a value. An owner's rank is added when it puts a value. An outdated rank can only stand too early
        in the heap; it is corrected when it comes first."""
        self._lock = threading.Lock()

    def __contains__(self, key: KeyT) -> bool:
        return key in self._entries

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of a key and mark it as just used; None if there is no value."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._owners[entry.owner].keys.move_to_end(key)
            self._uses += 1
            entry.used = self._uses
            return entry.value

    def put(self, key: KeyT, value: ValueT, size: int = 0) -> None:
        """Store a value of size `size` for the current owner, replacing any earlier value of the key."""
        entry = _Entry(value, size, current_owner())
        with self._lock:
            if key in self._entries:
                self._drop(key)
            owned = self._owners.get(entry.owner)
            if owned is None:
                owned = self._owners[entry.owner] = _Owned()
            self._entries[key] = entry
            owned.keys[key] = None
            owned.size += size
            self._size += size
            self._uses += 1
            entry.used = self._uses
            self._note_growth(entry.owner, owned)
            while len(self._entries) > 1 and (
                len(self._entries) > self._most or self._size > self._max_size
            ):
                self._drop(self._next_to_go(key, by_size=len(self._entries) <= self._most))

    def _next_to_go(self, newest: KeyT, *, by_size: bool) -> KeyT:
        """The oldest key of the owner with the most values, except `newest`."""
        ranks = self._ranks[by_size]
        aside: _Rank | None = None
        while True:
            owned = self._owners.get(ranks[0][2])
            if owned is None:
                heappop(ranks)
                continue
            oldest = next(iter(owned.keys))
            rank = self._rank(ranks[0][2], owned, by_size)
            if rank != ranks[0]:
                heapreplace(ranks, rank)
            elif oldest == newest:  # the owner's only value
                aside = heappop(ranks)
            else:
                if aside is not None:
                    heappush(ranks, aside)
                return oldest

    def _rank(self, owner: str, owned: _Owned[KeyT], by_size: bool) -> _Rank:
        most = owned.size if by_size else len(owned.keys)
        return -most, self._entries[next(iter(owned.keys))].used, owner

    def _note_growth(self, owner: str, owned: _Owned[KeyT]) -> None:
        for by_size, ranks in self._ranks.items():
            if len(ranks) > 2 * len(self._owners) + 64:
                ranks[:] = [self._rank(name, each, by_size) for name, each in self._owners.items()]
                heapify(ranks)
            else:
                heappush(ranks, self._rank(owner, owned, by_size))

    def _drop(self, key: KeyT) -> None:
        entry = self._entries.pop(key)
        owned = self._owners[entry.owner]
        del owned.keys[key]
        owned.size -= entry.size
        self._size -= entry.size
        if not owned.keys:
            del self._owners[entry.owner]


class ComputedCache(Generic[KeyT, ValueT]):
    """An LRU cache of values that take long to compute. Values larger than `max_size` are not kept.

    Concurrent calls with the same key compute the value once. If all of these calls are cancelled, the computation is
    too.
    """

    def __init__(self, max_size: int, size_of: Callable[[ValueT], int]) -> None:
        """`size_of` returns the size of a value, in the unit of `max_size`."""
        self._max_size = max_size
        self._size_of = size_of
        self._values = LruCache[KeyT, ValueT](max_size=max_size)
        self._making: dict[KeyT, _Making[ValueT]] = {}

    async def get(self, key: KeyT, make: Callable[[], Coroutine[Any, Any, ValueT]]) -> ValueT:
        """Return the value of a key; if it is not cached, compute it with `make`. Raises what `make` raises."""
        if (found := self._values.get(key)) is not None:
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

    def cancel(self) -> None:
        """Cancel all computations. The calls that wait for them are cancelled too."""
        for making in self._making.values():
            making.task.cancel()

    def _store(self, key: KeyT, task: asyncio.Future[ValueT]) -> None:
        self._forget(key, task)
        if not task.cancelled() and task.exception() is None:
            value = task.result()
            size = self._size_of(value)
            if size <= self._max_size and key not in self._values:
                self._values.put(key, value, size)

    def _forget(self, key: KeyT, task: asyncio.Future[ValueT]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]


class _Making(Generic[ValueT]):
    """A value that is being computed, and the number of calls that wait for it."""

    def __init__(self, task: asyncio.Future[ValueT]) -> None:
        self.task = task
        self.waiting = 0
