"""Text from external sources on a terminal, and text from a terminal in requests."""

from __future__ import annotations

import unicodedata
from typing import Final

_BIDI: Final = frozenset(map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))  # fmt: skip
"""Characters that change the direction of the following text, even beyond the text that contains them."""
_LONGEST_LINE: Final = 500


def visible(text: str) -> str:
    """`text` without anything that a terminal interprets, except line feeds and tabs.

    Control characters become their pictures (U+241B for escape), or U+FFFD. Carriage returns are removed. Works on any
    part of a text, wherever it was cut.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character in "\n\t":
        return character
    if character == "\r":
        return ""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if character in _BIDI or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return "\ufffd"
    return character


def one_line(text: str) -> str:
    """`text` on one line, made visible and shortened."""
    line = " ".join(visible(text[: 4 * _LONGEST_LINE]).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def without_surrogates(text: str) -> str:
    """`text` from a command line or a terminal, with U+FFFD in place of bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
