"""A bounded cache of the token ids of texts."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Hashable, Iterable, Sequence

_ENTRY = 500
"""Maximum size of an entry in bytes, without its texts and its token ids."""


class TokenCache:
    """Maps keys made of texts to token ids, in at most `max_bytes` bytes. The least recently used entries are dropped
    first.

    Thread-safe. A key must contain everything on which the ids depend, and also their owner: the faster look-up would
    tell another owner which texts were sent.
    """

    def __init__(self, max_bytes: int) -> None:
        # Two generations instead of an order of use, which each look-up would change. The older one
        # is dropped as a whole.
        self._most = max_bytes // 2
        self._newer: dict[Hashable, tuple[array[int], int]] = {}
        self._older: dict[Hashable, tuple[array[int], int]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Sequence[int] | None:
        """The ids that were kept with `key`; None if there are none."""
        return self.get_all((key,))[0]

    def get_all(self, keys: Sequence[Hashable]) -> list[Sequence[int] | None]:
        """The ids that were kept with each of `keys`; None for keys without ids."""
        entries = list(map(self._newer.get, keys))
        if not all(entries):
            for index, key in enumerate(keys):
                if entries[index] is None and (entry := self._older.get(key)) is not None:
                    entries[index] = entry
                    self._add(key, entry)
        return [entry and entry[0] for entry in entries]

    def keep(self, key: Hashable, texts: Iterable[str], ids: Sequence[int]) -> None:
        """Keep `ids` with `key`. `texts` are the strings in the key. Does nothing if all this takes more than half of
        the cache."""
        made = array("I", ids)
        self._add(key, (made, _ENTRY + made.itemsize * len(made) + sum(map(sys.getsizeof, texts))))

    def _add(self, key: Hashable, entry: tuple[array[int], int]) -> None:
        size = entry[1]
        with self._lock:
            if size > self._most or key in self._newer:
                return
            if self._size + size > self._most:
                self._older, self._newer, self._size = self._newer, {}, 0
            self._newer[key] = entry
            self._size += size
