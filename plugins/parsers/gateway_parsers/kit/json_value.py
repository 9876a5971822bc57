"""Streaming reader of one JSON value, which finds its end and repairs errors. Reads each character once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from gateway_parsers.kit.json_structure import (
    CLOSER,
    MAX_SPACES,
    ODD_QUOTES,
    QUOTES,
    JsonStructure,
)
from gateway_parsers.kit.markers import WHITESPACE, MarkerSet
from gateway_parsers.kit.reader import skip

StringStop: TypeAlias = Callable[[str], Any]
"""Finds what is not plain text in a string; None if there is nothing else."""
_STRING_STOP: Final = {
    '"': re.compile(r'["\\\x00-\x1f]'),
    "'": re.compile(r"['\"\\\x00-\x1f]"),
    "”": re.compile(r'[”"\\\x00-\x1f]'),
    "’": re.compile(r'[’"\\\x00-\x1f]'),
    "`": re.compile(r'[`"\\\x00-\x1f]'),
}
_PLAIN_STOPS: Final = "\"'\\"
_SCALAR_END: Final = re.compile(r'[\s,:"{}\[\]]')
_ESCAPABLE: Final = 'bfnrt"\\/'
_CONTROL: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_HEX: Final = re.compile(r"[0-9a-fA-F]{0,4}")
_QUOTE: Final = f"""["'{ODD_QUOTES}]?"""
_NEXT_KEY: Final = re.compile(rf"{_QUOTE}[\w$. -]{{1,64}}{_QUOTE}\s{{0,{MAX_SPACES}}}:")
"""A key that may lack a quotation mark."""
_KEY_SO_FAR: Final = re.compile(rf"{_QUOTE}[\w$. -]{{0,64}}{_QUOTE}\s{{0,{MAX_SPACES}}}")
_MAX_KEY: Final = 2 + 64 + MAX_SPACES


class JsonValue(JsonStructure):
    """Reads one JSON value and returns its text; valid JSON is returned unchanged.

    Errors that models make are repaired and counted in `repairs`. In strings: raw line breaks, unknown escapes, and
    quotation marks not followed by JSON syntax. Outside: superfluous or missing commas, missing or wrong brackets,
    single quotes, Python's literals, unquoted keys and values, numbers such as 007.

    A marker of `stops` outside a string ends the value, which is then `interrupted`. If markers are `special` tokens,
    one inside a string that is followed by another one, or by nothing, also does: the string's end is missing.
    """

    __slots__ = ("_outer", "_scalar", "_string_stops", "_triple")

    def __init__(self, stops: MarkerSet, *, special: bool = False, member: bool = False) -> None:
        """`member`: the value is a string that is a member of an object, so that what follows tells whether a quotation
        mark is its end."""
        super().__init__(stops)
        self._outer = int(member)
        """Number of brackets around the value."""
        if member:
            self._closers.append("}")
        self._string_stops = string_stops(stops.firsts if special else "")
        self._scalar = False
        self._triple = False
        """Whether three quotation marks delimit the open string."""

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Continue at `pos`. Returns where reading stopped, and the value's text up to there.

        Stops before the end of `text` if the value is done or interrupted, or if the last characters are undecided;
        pass those again with more text. `final`: nothing follows.
        """
        parts: list[str] = []
        end = len(text)
        while pos < end and not self.done and not self.interrupted:
            if self._quote:
                reached = self._string(text, pos, final, parts)
            elif len(self._closers) > self._outer:
                reached = self._inside(text, pos, final, parts)
            else:
                reached = self._top(text, pos, final, parts)
            if reached == pos:
                break
            pos = reached
        return pos, "".join(parts)

    @property
    def stop_in_string(self) -> StringStop | None:
        """Text in which it finds nothing is part of the open string as it stands; None if no string is open."""
        return self._string_stops[self._quote].search if self._quote and not self._empty else None

    def ending(self) -> str:
        """What completes a value that ended anywhere, even in a string."""
        self.repairs += 1
        end = ""
        if self._quote:
            end = '"'
            self._end_string()
        return end + self.closing()

    def _top(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """Start the value, or continue a top-level number or literal."""
        char = text[pos]
        if not self._scalar and char in QUOTES:
            return self._begin_string(char, pos, parts)
        if not self._scalar and char in CLOSER:
            return self._open(char, pos, parts)
        self._scalar = True
        hit = _SCALAR_END.search(text, pos)
        limit = hit.start() if hit is not None else len(text)
        for first in self._stops.firsts:
            found = text.find(first, pos, limit)
            if found >= 0:
                limit = found
        parts.append(text[pos:limit])
        self.done = limit < len(text) or final
        return limit

    def _string(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        quote = self._quote
        if self._empty:
            triple = self._is_triple(text, pos, final)
            if triple is None:
                return pos
            self._empty = False
            if triple:
                self.repairs += 1
                self._triple = True
                return pos + 2
        hit = self._string_stops[quote].search(text, pos)
        if hit is None:
            parts.append(text[pos:])
            return len(text)
        at = hit.start()
        if at > pos:
            parts.append(text[pos:at])
        char = text[at]
        if char in self._stops.firsts and char not in _PLAIN_STOPS and char != quote:
            return self._marker_in_string(text, at, final, parts)
        if char == "\\":
            return self._escape(text, at, final, parts)
        if char == quote or (char == '"' and quote == "”"):
            length = 3 if self._triple else 1
            if self._triple and not text.startswith(quote * 3, at):
                if (
                    len(text) - at < 3
                    and text.startswith(quote * (len(text) - at), at)
                    and not final
                ):
                    return at
                closes: bool | None = False
            else:
                closes = self._closes(text, at + length, final)
            if closes is None:
                return at
            if closes:
                parts.append('"')
                self._end_string()
                self.done = len(self._closers) == self._outer
                return at + length
        self.repairs += 1
        if char == '"':
            parts.append('\\"')
        elif char >= " ":
            parts.append(char)
        else:
            parts.append(_CONTROL.get(char) or f"\\u{ord(char):04x}")
        return at + 1

    def _end_string(self) -> None:
        self._quote = ""
        self._triple = False
        self._place = "colon" if self._place == "key" else "after"

    def _is_triple(self, text: str, pos: int, final: bool) -> bool | None:
        """Whether the mark that has begun the open string is the first of three; None if more text is needed."""
        quote = self._quote
        if quote not in QUOTES or self._place != "value" or not self._closers:
            return False
        return text.startswith(quote * 2, pos) or (
            None if text.startswith(quote, pos) and pos + 1 == len(text) and not final else False
        )

    def _marker_in_string(self, text: str, at: int, final: bool, parts: list[str]) -> int:
        stops = self._stops
        marker = stops.at(text, at)
        if marker is None:
            if not final and stops.begins_at(text, at):
                return at
            parts.append(text[at])
            return at + 1
        after = at + len(marker.text)
        following = skip(text, after, WHITESPACE)
        near = following - after <= MAX_SPACES
        waits = following == len(text) or stops.begins_at(text, following)
        if not final and waits and near:
            return at
        if near and stops.at(text, following) is None and following < len(text):
            parts.append(marker.text)
            return after
        parts.append('"')
        self.repairs += 1
        self._end_string()
        self.interrupted = True
        return at

    def _escape(self, text: str, at: int, final: bool, parts: list[str]) -> int:
        end = len(text)
        follower = text[at + 1 : at + 2]
        if not follower:
            if final:
                parts.append("\\\\")
            return end if final else at
        known = follower in _ESCAPABLE
        if follower == "u":
            digits = _HEX.match(text, at + 2)
            after = digits.end() if digits is not None else at + 2
            if after == end and after < at + 6 and not final:
                return at
            known = after == at + 6
        if known:
            parts.append(text[at : at + 2])
            return at + 2
        self.repairs += 1
        if follower == "'":
            parts.append(follower)
            return at + 2
        parts.append("\\\\")
        return at + 1

    def _closes(self, text: str, after: int, final: bool) -> bool | None:
        """Whether the quotation mark before `after` ends its string; None if more text is needed."""
        if not self._closers:
            return True
        at = skip(text, after, WHITESPACE)
        if at == len(text) or at - after > MAX_SPACES:
            return True if final or at - after > MAX_SPACES else None
        char = text[at]
        if char in self._stops.firsts:
            if self._stops.at(text, at) is not None:
                return True
            if self._stops.begins_at(text, at):
                return True if final else None
        if self._place == "key":
            return True
        if char == ",":
            following = skip(text, at + 1, WHITESPACE)
            if following == len(text) or following - at > MAX_SPACES:
                return True if final or following - at > MAX_SPACES else None
            return self._may_follow(text, following, final)
        quotes = char in QUOTES or (char != "`" and char in ODD_QUOTES)
        if quotes and self._closers[-1] == "}" and "\n" not in text[after:at]:
            return self._is_key(text, at, final)
        return char in "}]`" or (quotes and "\n" in text[after:at])

    def _may_follow(self, text: str, pos: int, final: bool) -> bool | None:
        """Whether a key or a value of the innermost bracket may start at `pos`, after a comma."""
        char = text[pos]
        if char in self._stops.firsts:
            if self._stops.at(text, pos) is not None:
                return True
            if self._stops.begins_at(text, pos):
                return True if final else None
        if self._closers[-1] == "}":
            return char in "\"'},/" or self._is_key(text, pos, final)
        return char in "\"'{[],-" or char in ODD_QUOTES or char.isalnum()

    def _is_key(self, text: str, pos: int, final: bool) -> bool | None:
        """Whether a key, possibly with missing quotation marks, starts at `pos`; None if more text is needed."""
        if _NEXT_KEY.match(text, pos):
            return True
        begun = _KEY_SO_FAR.match(text, pos)
        may_be = begun is not None and begun.end() == len(text) and len(text) - pos <= _MAX_KEY
        return None if may_be and not final else False


@lru_cache(maxsize=256)
def string_stops(firsts: str) -> dict[str, re.Pattern[str]]:
    """Patterns, by quotation mark, for what is not plain text in a string. Markers start with `firsts`."""
    if not firsts:
        return _STRING_STOP
    first = re.escape(firsts)
    return {mark: re.compile(f"{stop.pattern[:-1]}{first}]") for mark, stop in _STRING_STOP.items()}
