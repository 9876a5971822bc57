"""Tracks the prompt prefixes that a replica has cached, so that conversations reuse its key-value cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MAX_BLOCKS = 1024
"""Maximum number of blocks compared per prompt."""


def prefix_chain(token_ids: Sequence[int], *, block: int, seed: object) -> list[int]:
    """One hash per whole block of `block` tokens; each covers the prompt up to the end of its block.

    `seed` holds what separates engine caches (cache_salt, adapter), so prompts with different seeds share nothing. A
    collision only sends a request to a replica needlessly.
    """
    count = min(len(token_ids) // block, MAX_BLOCKS)
    value = hash(seed)
    chain: list[int] = []
    for index in range(count):
        value = hash((value, tuple(token_ids[index * block : (index + 1) * block])))
        chain.append(value)
    return chain


class PrefixIndex:
    """The blocks most recently read by one replica, at most `capacity`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Sequence[int]) -> int:
        """Number of leading blocks of `chain` that the replica has read."""
        blocks = self._blocks
        for index, value in enumerate(chain):
            if value not in blocks:
                return index
        return len(chain)

    def add(self, chain: Sequence[int]) -> None:
        """Record that the replica reads `chain`. Evicts the least recently read blocks, a prompt's end before its
        start."""
        blocks = self._blocks
        for value in reversed(chain):
            blocks[value] = None
            blocks.move_to_end(value)
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, because the replica restarted."""
        self._blocks.clear()
