"""Vectors that a text gets without a model: the same in every process, and near each other for texts that share words."""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gateway.engines.vectors import normalized, shortened

_WORD: Final = re.compile(r"\w+")


def made_up_vector(
    text: str,
    dimensions: int,
    wanted: int | None = None,
    *,
    synonyms: Mapping[str, str] = {},
) -> array[float]:
    """A vector of length 1: the sum of its words' own. Word order and case do not count; `wanted` shortens it.

    `synonyms` are words, in lower case, that have the vector of another.
    """
    words = [synonyms.get(word, word) for word in _WORD.findall(text.casefold())] or [text]
    total = array("f", bytes(4 * dimensions))
    for word in words:
        for index, number in enumerate(_of_word(word, dimensions)):
            total[index] += number
    return shortened(normalized(total), wanted)


@lru_cache(maxsize=4096)
def _of_word(word: str, dimensions: int) -> array[float]:
    # Nothing secret depends on it, and the same seed has given the same numbers since Python 3.2.
    chance = random.Random(word)  # noqa: S311
    return array("f", [chance.gauss(0.0, 1.0) for _ in range(dimensions)])
