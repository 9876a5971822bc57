"""One JSON value that arrives in pieces: where it ends, and what is wrong with it put right. Nothing is read twice."""

from __future__ import annotations

import math
import re
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from gateway_parsers.kit.coercion import MAX_DIGITS, quoted
from gateway_parsers.kit.markers import WHITESPACE, MarkerSet
from gateway_parsers.kit.reader import skip

_STRING_STOP: Final = {
    '"': re.compile(r'["\\\x00-\x1f]'),
    "'": re.compile(r"['\"\\\x00-\x1f]"),
}
_SCALAR_END: Final = re.compile(r'[\s,:"{}\[\]]')
_ESCAPABLE: Final = 'bfnrt"\\/'
_CLOSER: Final = {"{": "}", "[": "]"}
_CONTROL: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
    "NaN": "null",
}
_LITERALS: Final = ("true", "false", "null")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX: Final = re.compile(r"[0-9a-fA-F]{0,4}")
_TOKEN: Final = re.compile(r"[\w$+.\-\"'{\[]")
"""What a key or a value can begin with where one may stand, but need not."""
_RUN_ENDS: Final = ",:}]\n\"'"
_MAX_SPACES: Final = 64


class _Place(Enum):
    """What comes next in the innermost bracket."""

    KEY = auto()
    COLON = auto()
    VALUE = auto()
    AFTER = auto()


class JsonValue:
    """Reads one JSON value and gives its text; valid JSON comes out as it was written.

    What models get wrong is put right on the way, and counted in `repairs`. In strings: raw line breaks, escapes that JSON
    does not know, quotation marks that nothing of the syntax follows. Outside: commas too many or missing, brackets missing
    or of the wrong kind, single quotes, Python's words, keys and values without quotes, numbers such as 007.
    A marker of `stops` outside a string ends the value: it is then `interrupted`.
    """

    __slots__ = (
        "_bare_keys", "_closers", "_comma", "_is_text", "_place", "_quote", "_run", "_run_ends", "_scalar", "_stops", "done", "interrupted",
        "repairs",
    )  # fmt: skip

    def __init__(self, stops: MarkerSet) -> None:
        self.done = False
        self.interrupted = False
        self.repairs = 0
        self._stops = stops
        self._run_ends = run_ends(stops.firsts)
        self._closers: list[str] = []
        self._place = _Place.VALUE
        self._quote = ""
        """What began the open string."""
        self._comma: list[str] | None = None
        """A comma and what followed it, held until it is clear that it belongs there."""
        self._run: list[str] | None = None
        """A number, a word, or a key or a value without quotes."""
        self._is_text = False
        """The run has quotation marks in it, and so is no word."""
        self._bare_keys = False
        self._scalar = False

    @property
    def in_string(self) -> bool:
        return bool(self._quote)

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Read on from `pos`; returns where it stopped and the value's text up to there.

        It stops before the end of `text` when the value is done or interrupted, or when the last characters cannot be
        judged yet: hand those in again with what follows. `final`: nothing follows.
        """
        parts: list[str] = []
        end = len(text)
        while pos < end and not self.done and not self.interrupted:
            if self._quote:
                reached = self._string(text, pos, final, parts)
            elif self._closers:
                reached = self._inside(text, pos, final, parts)
            else:
                reached = self._top(text, pos, final, parts)
            if reached == pos:
                break
            pos = reached
        return pos, "".join(parts)

    def closing(self) -> str:
        """What is missing to make a value whole that ended outside a string, as far as brackets can do it."""
        parts: list[str] = []
        if self._run is not None and self._place is _Place.VALUE:
            word = "".join(self._run).rstrip(WHITESPACE)
            self._run = [next((whole for whole in _LITERALS if whole.startswith(word)), word)]
        self._end_run(parts)
        while self._closers:
            self._complete(parts)
            parts.append(self._closers.pop())
            self._place = _Place.AFTER
        return "".join(parts)

    def _top(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """The value begins, or goes on as a number or a word that stands by itself."""
        char = text[pos]
        if not self._scalar and char in _STRING_STOP:
            return self._begin_string(char, pos, parts)
        if not self._scalar and char in _CLOSER:
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

    def _begin_string(self, quote: str, pos: int, parts: list[str]) -> int:
        self.repairs += quote == "'"
        self._quote = quote
        parts.append('"')
        return pos + 1

    def _open(self, bracket: str, pos: int, parts: list[str]) -> int:
        self._closers.append(_CLOSER[bracket])
        self._place = _Place.KEY if bracket == "{" else _Place.VALUE
        parts.append(bracket)
        return pos + 1

    def _inside(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """In brackets, outside strings."""
        if self._run is not None:
            return self._more_run(text, pos, final, parts)
        char = text[pos]
        if char in WHITESPACE:
            after = skip(text, pos, WHITESPACE)
            (parts if self._comma is None else self._comma).append(text[pos:after])
            return after
        if char in self._stops.firsts:
            if self._stops.at(text, pos) is not None:
                self.interrupted = True
                return pos
            if not final and self._stops.begins_at(text, pos):
                return pos
        if char in "}]":
            return self._close(char, pos, parts)
        if char == ",":
            self._separate(parts)
            return pos + 1
        place = self._place
        if char == ":" and place is _Place.COLON:
            parts.append(":")
            self._place = _Place.VALUE
            return pos + 1
        if (place is not _Place.VALUE and not _TOKEN.match(char)) or char == ":":
            self.repairs += 1  # nothing that could begin here: not shown
            return pos + 1
        return self._begin_token(char, text, pos, final, parts)

    def _begin_token(self, char: str, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """A key or a value begins."""
        if self._place is _Place.AFTER:
            self.repairs += 1
            self._comma = [", "]
            self._place = self._next_place()
        elif self._place is _Place.COLON:
            self.repairs += 1
            parts.append(": ")
            self._place = _Place.VALUE
        if self._place is _Place.KEY and char in _CLOSER:
            self.repairs += 1  # a bracket too many
            return pos + 1
        if self._comma is not None:
            parts += self._comma
            self._comma = None
        if char in _STRING_STOP:
            return self._begin_string(char, pos, parts)
        if char in _CLOSER:
            return self._open(char, pos, parts)
        self._run = [char]
        self._is_text = False
        return pos + 1

    def _next_place(self) -> _Place:
        return _Place.KEY if self._closers[-1] == "}" else _Place.VALUE

    def _separate(self, parts: list[str]) -> None:
        """A comma stands here."""
        if self._place is not _Place.AFTER:
            self.repairs += 1
            if self._place is _Place.COLON or (
                self._closers[-1] == "}" and self._place is _Place.VALUE
            ):
                self._complete(parts)
            else:
                return
        self._comma = [","]
        self._place = self._next_place()

    def _complete(self, parts: list[str]) -> None:
        """Nothing more comes of the member that is open."""
        if self._comma is not None:
            self.repairs += 1
            self._comma = None
            return
        if self._place is _Place.COLON:
            self.repairs += 1
            parts.append(": null")
        elif self._place is _Place.VALUE and self._closers[-1] == "}":
            self.repairs += 1
            parts.append("null")
        self._place = _Place.AFTER

    def _close(self, char: str, pos: int, parts: list[str]) -> int:
        if char not in self._closers:
            self.repairs += 1
            return pos + 1
        while True:
            self._complete(parts)
            self._place = _Place.AFTER
            closer = self._closers.pop()
            parts.append(closer)
            if closer == char:
                break
            self.repairs += 1
        self.done = not self._closers
        return pos + 1

    def _more_run(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        run = self._run
        assert run is not None
        pattern = self._run_ends[self._place is _Place.KEY]
        hit = pattern.search(text, pos)
        if hit is None:
            run.append(text[pos:])
            return len(text)
        at = hit.start()
        run.append(text[pos:at])
        if text[at] in self._stops.firsts and self._stops.at(text, at) is None:
            if not final and self._stops.begins_at(text, at):
                return at
            if text[at] not in _RUN_ENDS:
                run.append(text[at])
                return at + 1
        if text[at] in _STRING_STOP and self._place is _Place.VALUE:
            # Behind a whole word a comma is missing; otherwise the mark is one of the run's own.
            self._is_text = self._is_text or not _is_scalar("".join(run).rstrip(WHITESPACE))
            if self._is_text:
                run.append(text[at])
                return at + 1
        self._end_run(parts)
        return self._inside(text, at, final, parts)

    def _end_run(self, parts: list[str]) -> None:
        if self._run is None:
            return
        run = "".join(self._run)
        self._run = None
        word = run.rstrip(WHITESPACE)
        if self._place is _Place.KEY:
            said = quoted(word)
            self._bare_keys = True
            self._place = _Place.COLON
        else:
            said = scalar(word)
            self._place = _Place.AFTER
        self.repairs += said != word
        parts += (said, run[len(word) :])

    def _string(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        quote = self._quote
        hit = _STRING_STOP[quote].search(text, pos)
        if hit is None:
            parts.append(text[pos:])
            return len(text)
        at = hit.start()
        if at > pos:
            parts.append(text[pos:at])
        char = text[at]
        if char == "\\":
            return self._escape(text, at, final, parts)
        if char == quote:
            closes = self._closes(text, at + 1, final)
            if closes is None:
                return at
            if closes:
                parts.append('"')
                self._quote = ""
                self._place = _Place.COLON if self._place is _Place.KEY else _Place.AFTER
                self.done = not self._closers
                return at + 1
        self.repairs += 1
        if char == '"':
            parts.append('\\"')
        elif char == "'":
            parts.append(char)
        else:
            parts.append(_CONTROL.get(char) or f"\\u{ord(char):04x}")
        return at + 1

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
        """Whether the quotation mark before `after` ends its string; None: more text must come."""
        if not self._closers:
            return True
        at = skip(text, after, WHITESPACE)
        if at == len(text) or at - after > _MAX_SPACES:
            return True if final or at - after > _MAX_SPACES else None
        char = text[at]
        if char in self._stops.firsts:
            if self._stops.at(text, at) is not None:
                return True
            if self._stops.begins_at(text, at):
                return True if final else None
        if self._place is _Place.KEY:
            return char in ":,}"
        if char == ",":
            following = skip(text, at + 1, WHITESPACE)
            if following == len(text) or following - at > _MAX_SPACES:
                return True if final or following - at > _MAX_SPACES else None
            return self._may_follow(text, following)
        return char in "}]`" or (char in _STRING_STOP and "\n" in text[after:at])

    def _may_follow(self, text: str, pos: int) -> bool:
        """Whether what stands at `pos` may be a key or a value of the innermost bracket, behind a comma."""
        char = text[pos]
        if char in self._stops.firsts and (
            self._stops.at(text, pos) is not None or self._stops.begins_at(text, pos)
        ):
            return True
        if self._closers[-1] == "}":
            return char in "\"'},/" or self._bare_keys
        return char in "\"'{[],-" or char.isalnum()


def _is_scalar(word: str) -> bool:
    return word in _LITERALS or _NUMBER.fullmatch(word) is not None


def scalar(word: str) -> str:
    """A number or a word as JSON, and what is neither as a string."""
    if _is_scalar(word):
        return word
    if word in _WORDS:
        return _WORDS[word]
    if len(word) <= MAX_DIGITS:
        if _INTEGER.fullmatch(word):
            return str(int(word))
        if _DECIMAL.fullmatch(word) and math.isfinite(float(word)):
            return repr(float(word))
    return quoted(word)


@lru_cache(maxsize=256)
def run_ends(firsts: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What ends a value without quotes, and a key; `firsts` are the characters with which a marker can begin."""
    first = re.escape(firsts)
    return re.compile(rf"[,}}\]\n\"'{first}]"), re.compile(rf"[,:}}\]\n\"'{first}]")
