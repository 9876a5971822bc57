"""Character sets as sorted ranges of code points, and their GBNF notation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Characters: TypeAlias = tuple[tuple[int, int], ...]
"""Disjoint, sorted, inclusive ranges."""

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _,.:;!?=+*/()<>{}@#$%&|~'`"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def union(ranges: Iterable[tuple[int, int]]) -> Characters:
    """The set of all characters in `ranges`, which may overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(characters: Characters) -> Characters:
    """The complement of `characters`. Surrogates are excluded."""
    gaps: list[tuple[int, int]] = []
    at = 0
    for low, high in union([*characters, _SURROGATES]):
        if at < low:
            gaps.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        gaps.append((at, LAST))
    return tuple(gaps)


def intersection(one: Characters, other: Characters) -> Characters:
    """The intersection of two sets."""
    return complement(union([*complement(one), *complement(other)]))


def single(text: str) -> Characters:
    """The set of the characters of `text`."""
    return union((ord(character), ord(character)) for character in text)


ANY = complement(())
DIGITS: Characters = ((0x30, 0x39),)
WORD = union([*DIGITS, (0x41, 0x5A), (0x61, 0x7A), (0x5F, 0x5F)])
SPACE = single(" \t\n\r\f\v")
LINE = complement(single("\n"))
"""The characters that a dot matches in a regular expression."""


def literal(text: str) -> str:
    """`text` as a quoted GBNF literal."""
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(characters: Characters) -> str:
    """`characters` as a GBNF class in brackets. The set must not be empty.

    Negated classes and the dot are not used: llama.cpp matches them against every number that four bytes can encode,
    including surrogates and values beyond Unicode, so a model could write invalid UTF-8.
    """
    return f"[{_ranges(characters)}]"


def _ranges(characters: Characters) -> str:
    parts = []
    for low, high in characters:
        first, last = _escaped(chr(low)), _escaped(chr(high))
        parts.append(first if low == high else f"{first}-{last}")
    return "".join(parts)


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _PLAIN:
        return character
    if character in _NAMED:
        return _NAMED[character]
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
