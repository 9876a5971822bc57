"""Numbers and literals of JSON, and the variants that models write."""

from __future__ import annotations

import math
import re
from typing import Final

from gateway_parsers.kit.coercion import MAX_DIGITS, quoted

LITERALS: Final = ("true", "false", "null")
_WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
    "NaN": "null",
}
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def is_scalar(word: str) -> bool:
    return word in LITERALS or _NUMBER.fullmatch(word) is not None


def scalar(word: str) -> str:
    """A number or a literal as JSON; anything else as a string."""
    if is_scalar(word):
        return word
    if word in _WORDS:
        return _WORDS[word]
    if len(word) <= MAX_DIGITS:
        if _INTEGER.fullmatch(word):
            return str(int(word))
        if _DECIMAL.fullmatch(word) and math.isfinite(float(word)):
            return repr(float(word))
    return quoted(word)
