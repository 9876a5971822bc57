"""Deterministic embedding vectors without a model. Texts that share words have similar vectors."""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gateway.sdk.engines import normalized, shortened

_WORD: Final = re.compile(r"\w+")


def made_up_vector(
    text: str,
    dimensions: int,
    wanted: int | None = None,
    *,
    synonyms: Mapping[str, str] = {},
) -> array[float]:
    """A vector of length 1: the normalized sum of its words' vectors. Word order and case are ignored; `wanted`
    truncates it.

    `synonyms` maps lower-case words to the word whose vector they share.
    """
    words = [synonyms.get(word, word) for word in _WORD.findall(text.casefold())] or [text]
    total = array("f", bytes(4 * dimensions))
    for word in words:
        for index, number in enumerate(_of_word(word, dimensions)):
            total[index] += number
    return shortened(normalized(total), wanted)


@lru_cache(maxsize=4096)
def _of_word(word: str, dimensions: int) -> array[float]:
    # Not security-relevant; the same seed has given the same numbers since Python 3.2.
    chance = random.Random(word)  # noqa: S311
    return array("f", [chance.gauss(0.0, 1.0) for _ in range(dimensions)])
