"""Numbers and literals of JSON, and the variants that models write."""

from __future__ import annotations

import math
from typing import Final

from gateway_parsers.kit.coercion import DECIMAL, INTEGER, MAX_DIGITS, NUMBER, quoted

LITERALS: Final = ("true", "false", "null")
_WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "TRUE": "true",
    "FALSE": "false",
    "NULL": "null",
    "undefined": "null",
    "NaN": "null",
}


def is_scalar(word: str) -> bool:
    return word in LITERALS or NUMBER.fullmatch(word) is not None


def scalar(word: str) -> str:
    """A number or a literal as JSON; anything else as a string."""
    if is_scalar(word):
        return word
    if word in _WORDS:
        return _WORDS[word]
    if len(word) <= MAX_DIGITS:
        if INTEGER.fullmatch(word):
            return str(int(word))
        if DECIMAL.fullmatch(word) and math.isfinite(float(word)):
            return repr(float(word))
    return quoted(word)
