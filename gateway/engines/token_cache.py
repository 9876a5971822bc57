"""A bounded memory of texts' token ids."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Hashable, Iterable, Sequence

_ENTRY = 500
"""Bytes of an entry beside its texts and its token ids, at most."""


class TokenCache:
    """Maps keys made of texts to token ids, in at most `max_bytes` bytes. What was not asked for the longest is dropped first.

    Thread-safe. Keys have in them everything that the ids depend on, and whose they are: a look-up of what another client
    has sent is faster, which nobody else may see.
    """

    def __init__(self, max_bytes: int) -> None:
        # Two generations, instead of an order of use that each look-up changes. The older one is dropped as a whole.
        self._most = max_bytes // 2
        self._newer: dict[Hashable, tuple[array[int], int]] = {}
        self._older: dict[Hashable, tuple[array[int], int]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Sequence[int] | None:
        """The ids that were kept under `key`; None if there are none."""
        return self.get_all((key,))[0]

    def get_all(self, keys: Sequence[Hashable]) -> list[Sequence[int] | None]:
        """The ids that were kept under each of `keys`; None where there are none."""
        entries = list(map(self._newer.get, keys))
        if not all(entries):
            for index, key in enumerate(keys):
                if entries[index] is None and (entry := self._older.get(key)) is not None:
                    entries[index] = entry
                    self._add(key, entry)
        return [entry and entry[0] for entry in entries]

    def keep(self, key: Hashable, texts: Iterable[str], ids: Sequence[int]) -> None:
        """Keep `ids` under `key`, whose strings are `texts`. Does nothing if they take more than half of the cache."""
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
