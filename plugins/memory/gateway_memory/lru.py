"""A mapping ordered by last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LruMapping(Generic[T]):
    """A mapping that knows its least recently used entry, and when that was used. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, tuple[T, float, str | None]] = OrderedDict()
        self._owned: dict[str | None, OrderedDict[str, None]] = {}
        """The keys of each owner, in the same order."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def put(self, key: str, value: T, owner: str | None) -> None:
        """Store an entry of `owner`, as used now."""
        self.pop(key)
        self._entries[key] = (value, self._clock(), owner)
        self._owned.setdefault(owner, OrderedDict())[key] = None

    def get(self, key: str) -> T | None:
        """Look up an entry without marking it as used."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    def use(self, key: str) -> None:
        """Mark an existing entry as used now."""
        value, _, owner = self._entries[key]
        self._entries[key] = (value, self._clock(), owner)
        self._entries.move_to_end(key)
        self._owned[owner].move_to_end(key)

    def pop(self, key: str) -> T | None:
        found = self._entries.pop(key, None)
        if found is None:
            return None
        owned = self._owned[found[2]]
        del owned[key]
        if not owned:
            del self._owned[found[2]]
        return found[0]

    def oldest(self) -> tuple[str, float] | None:
        """The least recently used key and the time of its last use, or None if the mapping is empty."""
        for key, (_, used, _) in self._entries.items():
            return key, used
        return None

    def oldest_of(self, owner: str | None) -> tuple[str, float] | None:
        """The least recently used key of one owner and the time of its last use, or None."""
        for key in self._owned.get(owner, ()):
            return key, self._entries[key][1]
        return None
