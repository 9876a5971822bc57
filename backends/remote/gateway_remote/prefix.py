"""Which prompts' beginnings a replica has seen, so that a conversation finds its key-value cache again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MAX_BLOCKS = 1024
"""Blocks of one prompt that are looked at; prompts that differ only after them are alike enough."""


def prefix_chain(token_ids: Sequence[int], *, block: int, seed: object) -> list[int]:
    """One hash for each whole block of `block` tokens, which stands for the prompt up to that block's end.

    Engines keep their caches apart by what `seed` holds (cache_salt, adapter), so prompts of different seeds share
    nothing. Two prompts that collide are sent to one replica without need; nothing else follows.
    """
    count = min(len(token_ids) // block, MAX_BLOCKS)
    value = hash(seed)
    chain: list[int] = []
    for index in range(count):
        value = hash((value, tuple(token_ids[index * block : (index + 1) * block])))
        chain.append(value)
    return chain


class PrefixIndex:
    """The blocks that one replica has most recently read, at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Sequence[int]) -> int:
        """How many blocks of `chain`, from its beginning, the replica has seen."""
        blocks = self._blocks
        for index, value in enumerate(chain):
            if value not in blocks:
                return index
        return len(chain)

    def add(self, chain: Sequence[int]) -> None:
        """Note that the replica reads `chain`; what was read longest ago is forgotten, a prompt's end before its beginning."""
        blocks = self._blocks
        for value in reversed(chain):
            blocks[value] = None
            blocks.move_to_end(value)
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)

    def clear(self) -> None:
        """The replica has started afresh."""
        self._blocks.clear()
