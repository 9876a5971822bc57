"""Streaming structure of one JSON value: brackets, commas, numbers and literals."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.json_words import LITERALS, is_scalar, scalar
from gateway_parsers.kit.markers import WHITESPACE, MarkerContext, MarkerSet
from gateway_parsers.kit.reader import skip

QUOTES: Final = "\"'"
_ODD_QUOTES: Final = {"“": "”", "”": "”", "„": "”", "‘": "’", "’": "’", "`": "`"}
"""Marks that models write around keys and values in place of quotation marks, with those that end them."""
ODD_QUOTES: Final = "".join(_ODD_QUOTES)
_COMMENTS: Final = {"//": "\n", "/*": "*/"}
CLOSER: Final = {"{": "}", "[": "]"}
MAX_SPACES: Final = 64
"""White space, in characters, beyond which lookahead stops."""
_TOKEN: Final = re.compile(r"[\w$+.\-\"'{\[]")
"""First characters of a key or value where one is optional."""
_ANYWHERE: Final = MarkerContext()
_COMMENT_AFTER: Final = re.compile(r"\s+(?://|#).*|\s*/\*.*\*/", re.DOTALL)
"""A comment after a number or a literal."""
_RUN_ENDS: Final = ",:}]\n\"'"


ExpectedToken: TypeAlias = Literal["key", "colon", "value", "after"]
"""What is expected next in the innermost bracket. Not an enumeration: looking up a member costs several times as much as a
string."""


class JsonStructure:
    """The part of `JsonValue` that handles brackets and everything outside strings."""

    __slots__ = (
        "_closers", "_comma", "_comment", "_empty", "_is_text", "_place", "_quote", "_run", "_run_ends", "_stops", "done", "interrupted", "repairs",
    )  # fmt: skip

    def __init__(self, stops: MarkerSet) -> None:
        self.done = False
        self.interrupted = False
        self.repairs = 0
        self._stops = stops
        self._run_ends = run_ends(stops.firsts)
        self._closers: list[str] = []
        self._place: ExpectedToken = "value"
        self._quote = ""
        """The delimiter that ends the open string."""
        self._empty = False
        """Whether nothing follows the mark that has begun the open string."""
        self._comment = ""
        """The end of the open comment."""
        self._comma: list[str] | None = None
        """A comma and the text after it, held until it is known to be valid."""
        self._run: list[str] | None = None
        """A number, a literal, or an unquoted key or value."""
        self._is_text = False
        """Whether the run contains quotation marks, so that it is not a literal."""

    @property
    def may_close(self) -> bool:
        """Whether the value lacks only closing brackets: no string is open and no key lacks a value."""
        if self._quote or self._place == "colon":
            return False
        in_object = self._closers[-1:] == ["}"]
        if self._run is not None:
            return self._place != "key"
        return not (in_object and self._place == "value")

    def closing(self) -> str:
        """The closing brackets that complete a value that ended outside a string."""
        parts: list[str] = []
        if self._run is not None and self._place == "value":
            word = "".join(self._run).rstrip(WHITESPACE)
            self._run = [next((whole for whole in LITERALS if whole.startswith(word)), word)]
        self._end_run(parts)
        while self._closers:
            self._complete(parts)
            parts.append(self._closers.pop())
            self._place = "after"
        return "".join(parts)

    def _begin_string(self, quote: str, pos: int, parts: list[str]) -> int:
        self.repairs += quote != '"'
        self._quote = _ODD_QUOTES.get(quote, quote)
        self._empty = True
        parts.append('"')
        return pos + 1

    def _open(self, bracket: str, pos: int, parts: list[str]) -> int:
        self._closers.append(CLOSER[bracket])
        self._place = "key" if bracket == "{" else "value"
        parts.append(bracket)
        return pos + 1

    def _inside(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """Read inside brackets, outside strings."""
        if self._run is not None:
            return self._more_run(text, pos, final, parts)
        if self._comment:
            return self._more_comment(text, pos, final)
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
        if char in QUOTES and place == "colon":
            following = skip(text, pos + 1, WHITESPACE)
            near = following - pos <= MAX_SPACES
            if following == len(text) and not final and near:
                return pos
            if near and text[following : following + 1] == ":":
                self.repairs += 1  # the closing quote of a key without an opening one
                return pos + 1
        if char == ":" and place == "colon":
            parts.append(":")
            self._place = "value"
            return pos + 1
        if char == "/":
            if pos + 1 == len(text) and not final:
                return pos
            if (end := _COMMENTS.get(text[pos : pos + 2])) is not None:
                self.repairs += 1
                self._comment = end
                return pos + 2
        if char in _ODD_QUOTES and place in ("key", "value"):
            return self._begin_token(char, text, pos, final, parts)
        if (place != "value" and not _TOKEN.match(char)) or char == ":":
            self.repairs += 1  # nothing can start with this character: dropped
            return pos + 1
        return self._begin_token(char, text, pos, final, parts)

    def _begin_token(self, char: str, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """Start a key or a value."""
        if self._place == "after":
            self.repairs += 1
            self._comma = [", "]
            self._place = self._next_place()
        elif self._place == "colon":
            self.repairs += 1
            parts.append(": ")
            self._place = "value"
        if self._place == "key" and char in CLOSER:
            self.repairs += 1  # a superfluous bracket
            return pos + 1
        if self._comma is not None:
            parts += self._comma
            self._comma = None
        if char in QUOTES or char in _ODD_QUOTES:
            return self._begin_string(char, pos, parts)
        if char in CLOSER:
            return self._open(char, pos, parts)
        self._run = [char]
        self._is_text = False
        return pos + 1

    def _more_comment(self, text: str, pos: int, final: bool) -> int:
        """Skip a comment, which markers end, too."""
        comment = self._comment
        stop = self._stops.find(text, pos, _ANYWHERE, final=final)
        limit = stop[0] if stop is not None else len(text)
        found = text.find(comment, pos, limit)
        if found >= 0:
            self._comment = ""
            return found + len(comment)
        if stop is not None:
            self._comment = ""
            return limit
        if not final:
            limit -= max(
                self._stops.held(text, pos, _ANYWHERE), comment == "*/" and text.endswith("*")
            )
        return limit

    def _next_place(self) -> ExpectedToken:
        return "key" if self._closers[-1] == "}" else "value"

    def _separate(self, parts: list[str]) -> None:
        """Handle a comma."""
        if self._place != "after":
            self.repairs += 1
            if self._place == "colon" or (self._closers[-1] == "}" and self._place == "value"):
                self._complete(parts)
            else:
                return
        self._comma = [","]
        self._place = self._next_place()

    def _complete(self, parts: list[str]) -> None:
        """Complete the open member."""
        if self._comma is not None:
            self.repairs += 1
            self._comma = None
            return
        if self._place == "colon":
            self.repairs += 1
            parts.append(": null")
        elif self._place == "value" and self._closers[-1] == "}":
            self.repairs += 1
            parts.append("null")
        self._place = "after"

    def _close(self, char: str, pos: int, parts: list[str]) -> int:
        if char not in self._closers:
            self.repairs += 1
            return pos + 1
        while True:
            self._complete(parts)
            self._place = "after"
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
        pattern = self._run_ends[self._place == "key"]
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
        if text[at] in QUOTES and self._place == "value":
            # After a complete literal a comma is missing; otherwise the quotation mark belongs to the run.
            self._is_text = self._is_text or not is_scalar("".join(run).rstrip(WHITESPACE))
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
        written = word = run.rstrip(WHITESPACE)
        if self._place == "key":
            as_json = quoted(word)
            self._place = "colon"
        else:
            if (hit := _COMMENT_AFTER.search(word)) and is_scalar(scalar(word[: hit.start()])):
                word = word[: hit.start()]
            as_json = scalar(word)
            self._place = "after"
        self.repairs += as_json != written
        parts += (as_json, run[len(written) :])


@lru_cache(maxsize=256)
def run_ends(firsts: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for the end of an unquoted value and of an unquoted key. `firsts` are the first characters of
    markers."""
    first = re.escape(firsts)
    return re.compile(rf"[,}}\]\n\"'{first}]"), re.compile(rf"[,:}}\]\n\"'{first}]")
