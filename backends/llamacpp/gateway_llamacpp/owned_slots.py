"""Assigns llama.cpp's slots so that no request reuses the cached prompt of another owner."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class _Slot(Struct):
    """A slot and its last prompt."""

    number: int
    owner: str = ""
    prompt: Sequence[int] = ()
    running: bool = False
    used: int = 0
    """Order of its last use; higher is later."""


class OwnedSlots:
    """The slots of one server. A slot's cache is only reused by the owner of its last prompt."""

    def __init__(self, number: int, *, shared_memory: bool = False) -> None:
        """`shared_memory`: llama.cpp may restore any slot's state into another (`cache_ram_mib`)."""
        self._shared_memory = shared_memory
        self._slots = [_Slot(index) for index in range(number)]
        self._time = 0

    def take(self, owner: str, prompt: Sequence[int]) -> tuple[int, bool]:
        """A free slot, and whether its cache may be reused. At least one slot must be free.

        Prefers the owner's slot whose prompt has the longest common prefix with `prompt`, otherwise the least recently
        used slot.
        """
        free = [slot for slot in self._slots if not slot.running]
        own = [slot for slot in free if slot.owner == owner]
        alike = [(_common(slot.prompt, prompt), slot) for slot in own]
        best, chosen = max(alike, key=lambda pair: (pair[0], pair[1].used), default=(0, None))
        if chosen is None or (best == 0 and len(own) < len(free)):
            # A prompt without a common prefix gets a slot of its own.
            chosen = min((slot for slot in free if slot.owner != owner), key=lambda slot: slot.used)
        reusable = chosen.owner == owner and not self._shared_memory
        self._time += 1
        chosen.owner, chosen.prompt = owner, prompt
        chosen.running, chosen.used = True, self._time
        return chosen.number, reusable

    def release(self, number: int) -> None:
        """Mark the slot as free."""
        self._slots[number].running = False


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two prompts, in tokens."""
    length = min(len(one), len(other))
    low, high = 0, length
    while low < high:  # binary search, because comparing slices is fast
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
