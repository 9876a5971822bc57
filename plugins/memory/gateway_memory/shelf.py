"""Things in the order of their last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Shelf(Generic[T]):
    """A mapping that knows which of its things was not used for longest, and since when. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._things: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._things)

    def __contains__(self, key: str) -> bool:
        return key in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def put(self, key: str, thing: T) -> None:
        """Keep a thing, as used now."""
        self._things[key] = (thing, self._clock())
        self._things.move_to_end(key)

    def get(self, key: str) -> T | None:
        """Look without using."""
        found = self._things.get(key)
        return None if found is None else found[0]

    def use(self, key: str) -> None:
        """Note that a thing that is there was used now."""
        self.put(key, self._things[key][0])

    def pop(self, key: str) -> T | None:
        found = self._things.pop(key, None)
        return None if found is None else found[0]

    def oldest(self) -> tuple[str, float] | None:
        """The key that was not used for longest, and when it was used."""
        for key, (_, used) in self._things.items():
            return key, used
        return None
