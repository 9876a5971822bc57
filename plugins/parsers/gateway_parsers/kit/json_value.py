"""JSON that arrives in pieces: where a value ends, and what a string says. Nothing is read twice."""

from __future__ import annotations

import re
from functools import lru_cache

from gateway_parsers.kit.markers import MarkerSet

_STRING_STOP = re.compile(r'["\\\x00-\x1f]')
_TEXT_STOP = re.compile(r'["\\]')
_SCALAR_END = re.compile(r'[\s,:"{}\[\]]')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_CLOSER = {"{": "}", "[": "]"}
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class JsonValue:
    """Reads one JSON value and gives its text as it was written.

    What models often get wrong inside strings (raw line breaks, escapes that JSON does not know) and with brackets (one
    missing, one of the wrong kind) is put right on the way and counted in `repairs`; valid JSON comes out unchanged.
    A marker of `stops` outside a string ends the value: it is then `interrupted`.
    """

    __slots__ = (
        "_closers",
        "_in_string",
        "_last",
        "_scalar",
        "_stops",
        "_structure",
        "done",
        "interrupted",
        "repairs",
    )

    def __init__(self, stops: MarkerSet) -> None:
        self.done = False
        self.interrupted = False
        self.repairs = 0
        self._stops = stops
        self._structure = structure_pattern(stops.firsts)
        self._closers: list[str] = []
        self._in_string = False
        self._scalar = False
        self._last = ""

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Read on from `pos`; returns where it stopped and the value's text up to there.

        It stops before the end of `text` when the value is done or interrupted, or when the last characters cannot be
        judged yet: hand those in again with what follows. `final`: nothing follows.
        """
        parts: list[str] = []
        start = pos
        end = len(text)
        while pos < end and not self.done and not self.interrupted:
            if self._in_string:
                hit = _STRING_STOP.search(text, pos)
                if hit is None:
                    pos = end
                    break
                pos = hit.start()
                char = text[pos]
                if char == '"':
                    pos += 1
                    self._in_string = False
                    self.done = not self._closers
                elif char == "\\":
                    if pos + 1 == end:
                        if final:
                            pos = end
                        break
                    follower = text[pos + 1]
                    if follower in _ESCAPES or follower == "u":
                        pos += 2
                    else:
                        self.repairs += 1
                        parts.append(text[start:pos])
                        if follower != "'":
                            parts.append("\\\\")
                        pos += 1
                        start = pos
                else:
                    self.repairs += 1
                    parts.append(text[start:pos])
                    parts.append(_CONTROL.get(char) or f"\\u{ord(char):04x}")
                    pos += 1
                    start = pos
            elif self._closers:
                hit = self._structure.search(text, pos)
                if hit is None:
                    pos = end
                    break
                pos = hit.start()
                char = text[pos]
                if char in self._stops.firsts:
                    if self._stops.at(text, pos) is not None:
                        self.interrupted = True
                        break
                    if not final and self._stops.begins_at(text, pos):
                        break
                if char in "}]" and char != self._closers[-1]:
                    self.repairs += 1
                    parts.append(text[start:pos])
                    start = pos
                    if char in self._closers:
                        while self._closers[-1] != char:
                            parts.append(self._closers.pop())
                    else:
                        pos += 1
                        start = pos
                        continue
                pos += 1
                if char == '"':
                    self._in_string = True
                elif char in _CLOSER:
                    self._closers.append(_CLOSER[char])
                elif char in "}]":
                    self._closers.pop()
                    self.done = not self._closers
            elif not self._scalar and text[pos] == '"':
                self._in_string = True
                pos += 1
            elif not self._scalar and text[pos] in _CLOSER:
                self._closers.append(_CLOSER[text[pos]])
                pos += 1
            else:
                self._scalar = True
                hit = _SCALAR_END.search(text, pos)
                limit = hit.start() if hit is not None else end
                for first in self._stops.firsts:
                    found = text.find(first, pos, limit)
                    if found >= 0:
                        limit = found
                pos = limit
                self.done = limit < end or final
                break
        parts.append(text[start:pos])
        written = "".join(parts) if len(parts) > 1 else parts[0]
        significant = written.rstrip()
        if significant:
            self._last = significant[-1]
        return pos, written

    def closing(self) -> str:
        """What is missing to make an interrupted value whole, as far as brackets can do it."""
        missing = "".join(reversed(self._closers))
        return "null" + missing if self._last == ":" else missing


class JsonText:
    """Reads the inside of one JSON string, up to and including its closing quote, and gives what it says."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Like `JsonValue.read`; begins after the opening quote."""
        parts: list[str] = []
        end = len(text)
        while pos < end:
            hit = _TEXT_STOP.search(text, pos)
            if hit is None:
                parts.append(text[pos:])
                pos = end
                break
            parts.append(text[pos : hit.start()])
            pos = hit.start()
            if text[pos] == '"':
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
    """The escape that begins at `pos`: where it ends, and its character; `pos` itself if more text is needed."""
    end = len(text)
    if pos + 1 >= end:
        return (end, "\\") if final else (pos, "")
    follower = text[pos + 1]
    if follower != "u":
        return pos + 2, _ESCAPES.get(follower, "'" if follower == "'" else "\\" + follower)
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


@lru_cache(maxsize=256)
def structure_pattern(firsts: str) -> re.Pattern[str]:
    """What matters outside strings: quotes, brackets, and the characters with which a marker can begin."""
    return re.compile('["{}' + re.escape("[]" + firsts) + "]")
