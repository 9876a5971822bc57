"""Finding markers in text that arrives in pieces, with the shortest hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

WHITESPACE = " \t\r\n"
QUOTES = "\"'`"

Where: TypeAlias = Literal["anywhere", "line", "fresh", "unquoted", "last"]
"""Where a marker counts, and is not prose. `fresh`: only whitespace came before it in its block. `line`: fresh, or at the
beginning of a line. `unquoted`: not directly after a quotation mark or a backtick. `last`: at the end of the output."""


Action: TypeAlias = Literal[
    "open", "close", "call", "swallow", "frame", "stop", "key", "head", "hide", "turn_end"
]
"""open, close: something begins, ends. call: calls begin. swallow: markup out of place, not shown. frame: markup around
text, not shown. stop: ends a value, or calls. key: a parameter begins. head: a name, or a key, ends. hide: markup within
text, not shown. turn_end: ends the model's turn, not shown."""


class Marker(Struct, frozen=True):
    """A piece of markup, what it does, and where it counts."""

    text: str
    action: Action
    where: Where = "anywhere"


class Position(Struct):
    """What came before the text that is searched."""

    before: str = ""
    """The character before it; empty at the beginning of the output."""
    fresh: bool = True
    """Nothing but whitespace has come in the open block."""


class MarkerSet:
    """The markers that are live in one state.

    Two markers may share their text if their conditions differ: the first whose condition holds is taken. Where one
    begins like another, the longer is taken, which may mean to wait for more text.
    """

    __slots__ = (
        "_beginning_with",
        "_by_text",
        "_nested",
        "_pattern",
        "_prefixes",
        "_reach",
        "firsts",
        "longest",
        "only_first",
    )

    def __init__(self, markers: Iterable[Marker]) -> None:
        by_text: dict[str, list[Marker]] = {}
        prefixes: dict[str, list[Where]] = {}
        for marker in markers:
            by_text.setdefault(marker.text, []).append(marker)
            last = marker.where == "last"  # it may turn out not to be, as a beginning may
            for end in range(1, len(marker.text) + last):
                prefixes.setdefault(marker.text[:end], []).append(marker.where)
        self._by_text = {text: tuple(same) for text, same in by_text.items()}
        self._beginning_with = {
            text: tuple(
                chain.from_iterable(
                    by_text[text[:end]] for end in range(len(text), 0, -1) if text[:end] in by_text
                )
            )
            for text in by_text
        }
        """The markers that stand where this text stands: it, and what it begins with."""
        self._prefixes = {prefix: frozenset(wheres) for prefix, wheres in prefixes.items()}
        self._nested = frozenset(text for text in by_text if text in prefixes)
        longest_first = sorted(by_text, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if by_text else None
        self.longest = len(longest_first[0]) if by_text else 0
        self._reach = max(map(len, prefixes), default=0)
        """The length of the longest text that may yet become a marker."""
        self.firsts = "".join(sorted({text[0] for text in by_text}))
        self.only_first = self.firsts if len(self.firsts) == 1 else ""
        """The character that all markers begin with, where they have that in common."""
        """The characters with which a live marker can begin."""

    def find(
        self, text: str, pos: int, position: Position, *, final: bool
    ) -> tuple[int, Marker] | None:
        """The first live marker at or after `pos`, and where it begins. `final`: no more text follows."""
        if self._pattern is None:
            return None
        hit = self._pattern.search(text, pos)
        while hit is not None:
            start = hit.start()
            for marker in self._beginning_with[hit.group()]:
                if marker.where == "last" and start + len(marker.text) < len(text):
                    continue
                if _counts(marker.where, text, pos, start, position):
                    if not final and marker.text in self._nested:
                        wheres = self._prefixes.get(text[start:], ())
                        if any(_counts(each, text, pos, start, position) for each in wheres):
                            return None
                    return start, marker
            hit = self._pattern.search(text, start + 1)
        return None

    def may_grow(self, text: str, pos: int, marker: Marker) -> bool:
        """Whether `marker`, which stands at `pos`, may turn out to be a longer one."""
        return marker.text in self._nested and self.begins_at(text, pos)

    def at(self, text: str, pos: int) -> Marker | None:
        """The marker that stands whole at `pos`, whatever its condition."""
        hit = self._pattern.match(text, pos) if self._pattern is not None else None
        return self._by_text[hit.group()][0] if hit is not None else None

    def begins_at(self, text: str, pos: int) -> bool:
        """Whether `text` ends inside what may become a marker that begins at `pos`."""
        return len(text) - pos <= self._reach and text[pos:] in self._prefixes

    def held(self, text: str, pos: int, position: Position) -> int:
        """The length of the longest suffix of `text[pos:]` that is a proper prefix of a live marker."""
        end = len(text)
        for start in range(max(pos, end - self._reach), end):
            if text[start] in self.firsts:
                wheres = self._prefixes.get(text[start:])
                if wheres and any(_counts(where, text, pos, start, position) for where in wheres):
                    return end - start
        return 0


def _counts(where: Where, text: str, pos: int, start: int, position: Position) -> bool:
    if where in ("anywhere", "last"):
        return True
    before = text[start - 1] if start > pos else position.before
    if where == "unquoted":
        return before == "" or before not in QUOTES
    if where == "line" and (before == "\n" or before == ""):
        return True
    return position.fresh and not text[pos:start].strip(WHITESPACE)
