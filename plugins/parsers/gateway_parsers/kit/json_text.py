"""Streaming decoder of JSON strings."""

from __future__ import annotations

import re
from typing import Final

_STOPS: Final = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/", "'": "'",
}  # fmt: skip


class JsonStringReader:
    """Reads the inside of one JSON string, up to and including its closing quote, and returns the decoded text."""

    __slots__ = ("_quote", "_stop", "done")

    def __init__(self, quote: str = '"') -> None:
        """`quote` is the opening quote: `"`, or `'` as in Python."""
        self.done = False
        self._quote = quote
        self._stop = _STOPS[quote]

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Like `JsonValue.read`. Starts after the opening quote."""
        parts: list[str] = []
        end = len(text)
        while pos < end:
            hit = self._stop.search(text, pos)
            if hit is None:
                parts.append(text[pos:])
                pos = end
                break
            parts.append(text[pos : hit.start()])
            pos = hit.start()
            if text[pos] == self._quote:
                pos += 1
                self.done = True
                break
            after, char = escape(text, pos, final=final)
            if after == pos:
                break
            parts.append(char)
            pos = after
        return pos, "".join(parts)


def escape(text: str, pos: int, *, final: bool) -> tuple[int, str]:
    """Decode the escape at `pos`. Returns its end and its character; the end is `pos` if more text is needed."""
    end = len(text)
    if pos + 1 >= end:
        return (end, "\\") if final else (pos, "")
    follower = text[pos + 1]
    if follower != "u":
        return pos + 2, _ESCAPES.get(follower, "\\" + follower)
    if pos + 6 > end and not final:
        return pos, ""
    code = _hex4(text, pos + 2)
    if code is None:
        return pos + 2, "\\u"
    if not 0xD800 <= code <= 0xDFFF:
        return pos + 6, chr(code)
    if code <= 0xDBFF:
        following = text[pos + 6 : pos + 12]
        if not final and len(following) < 6 and "\\u".startswith(following[:2]):
            return pos, ""
        low = _hex4(text, pos + 8) if following.startswith("\\u") else None
        if low is not None and 0xDC00 <= low <= 0xDFFF:
            return pos + 12, chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
    return pos + 6, "\N{REPLACEMENT CHARACTER}"


def _hex4(text: str, pos: int) -> int | None:
    digits = text[pos : pos + 4]
    if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        return None
    return int(digits, 16)
