"""Shared values in the memory of one process; see `gateway.plugins.protocols.SharedValues`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MAX_VALUES: Final = 10_000
"""Maximum number of values per owner."""
MAX_BYTES: Final = 32 << 20
"""Maximum total size of one owner's values, in bytes. A value of up to `SMALL` bytes is always accepted; only the
number of values is limited."""
SMALL: Final = 1024


class ValueTable:
    """A table of values by owner and name. No method awaits, so each is atomic. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._owners: dict[str | None, dict[str, tuple[bytes, float]]] = {}

    def compare_and_set(
        self, name: str, value: bytes, expected: bytes | None, seconds: float, owner: str | None
    ) -> bytes | None:
        """See `SharedValues.compare_and_set`."""
        now = self._clock()
        values = self._owners.setdefault(owner, {})
        held = _held(values, name, now)
        if held == expected and _fits(values, name, value, now):
            values[name] = (value, now + seconds)
            return value
        if not values:
            del self._owners[owner]
        return held

    def get(self, name: str, owner: str | None) -> bytes | None:
        """See `SharedValues.get_value`."""
        return _held(self._owners.get(owner, {}), name, self._clock())


class ProcessValues:
    """Implements `gateway.plugins.protocols.SharedValues` for a gateway without a store."""

    def __init__(self) -> None:
        self._table = ValueTable()

    async def compare_and_set(
        self,
        name: str,
        value: bytes,
        *,
        expected: bytes | None,
        seconds: float,
        owner: str | None = None,
    ) -> bytes | None:
        return self._table.compare_and_set(name, value, expected, seconds, owner)

    async def get_value(self, name: str, *, owner: str | None = None) -> bytes | None:
        return self._table.get(name, owner)


def _held(values: dict[str, tuple[bytes, float]], name: str, now: float) -> bytes | None:
    value, ends = values.get(name, (None, now))
    return value if ends > now else None


def _fits(values: dict[str, tuple[bytes, float]], name: str, value: bytes, now: float) -> bool:
    if len(values) >= MAX_VALUES or len(value) > SMALL:
        for each in [each for each, (_, ends) in values.items() if ends <= now]:
            del values[each]
    if name not in values and len(values) >= MAX_VALUES:
        return False
    if len(value) <= SMALL:
        return True
    others = sum(len(held) for each, (held, _) in values.items() if each != name)
    return others + len(value) <= MAX_BYTES
