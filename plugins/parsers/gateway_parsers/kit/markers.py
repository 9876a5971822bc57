"""Finds markers in streamed text, holding back as little as possible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final, Literal, TypeAlias

from msgspec import Struct

WHITESPACE = " \t\r\n"
QUOTES = "\"'`"

Where: TypeAlias = Literal["anywhere", "line", "fresh", "unquoted", "last"]
"""Where a marker counts as markup. `fresh`: only white space precedes it in its block. `line`: fresh, or at the start
of a line. `unquoted`: not directly after a quotation mark or a backtick. `last`: at the end of the output."""


Action: TypeAlias = Literal[
    "open",
    "close",
    "call",
    "swallow",
    "frame",
    "stop",
    "key",
    "head",
    "drift",
    "hide",
    "hidden_tag",
    "call_markup",
    "tag",
    "turn_end",
]
"""open, close: start or end of reasoning. call: start of calls. swallow: misplaced markup, hidden. frame: markup around
text, hidden. stop: end of a value or of calls. key: start of a parameter. head: end of a name or a key. drift: start of a
misspelt end of a value. hide, hidden_tag: markup within text, hidden. call_markup, tag: markup of a call that could not be read, hidden. turn_end: end of
the model's turn, hidden."""


class Marker(Struct, frozen=True):
    """A piece of markup, its action, and where it counts."""

    text: str
    action: Action
    where: Where = "anywhere"


def check_distinct(starts: Iterable[str], ends: Iterable[str]) -> None:
    """Raise `ValueError` if a marker both starts and ends calls, because then no reader can tell which."""
    both = sorted({*starts} & {*ends})
    if both:
        raise ValueError(
            f"The marker {both[0]!r} both starts and ends calls. Give the end another marker, or none if calls end"
            " with their JSON."
        )


class MarkerContext(Struct):
    """Context of the text that is searched."""

    before: str = ""
    """The preceding character; empty at the start of the output."""
    fresh: bool = True
    """Whether the open block contains only white space so far."""


class MarkerSet:
    """The active markers of one state.

    Markers may share their text if their conditions differ; the first whose condition holds is used. If one marker is a
    prefix of another, the longer wins, which may require more text.
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
            last = marker.where == "last"  # it may turn out not to be last, like a prefix
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
        """For each text, the markers that match where it stands: itself and its prefixes."""
        self._prefixes = {prefix: frozenset(wheres) for prefix, wheres in prefixes.items()}
        self._nested = frozenset(text for text in by_text if text in prefixes)
        longest_first = sorted(by_text, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if by_text else None
        self.longest = len(longest_first[0]) if by_text else 0
        self._reach = max(map(len, prefixes), default=0)
        """Maximum length of a text that may still become a marker."""
        self.firsts = "".join(sorted({text[0] for text in by_text}))
        self.only_first = self.firsts if len(self.firsts) == 1 else ""
        """The first character of all markers, if it is the same for all."""
        """First characters of all active markers."""

    def find(
        self,
        text: str,
        pos: int,
        position: MarkerContext,
        *,
        final: bool,
        until: int | None = None,
    ) -> tuple[int, Marker] | None:
        """The first active marker at or after `pos`, with its position. `final`: no more text follows. `until`: a marker
        that starts behind it is not needed, so the search may end there."""
        if self._pattern is None:
            return None
        end = len(text) if until is None else until + self.longest
        hit = self._pattern.search(text, pos, end)
        blank = _blank_until(text, pos, position) if hit is not None else pos
        while hit is not None:
            start = hit.start()
            if not final and hit.group() in self._nested:
                # What is longer than the reach can no longer become a marker.
                rest = text[start : start + self._reach + 1]
                wheres = self._prefixes.get(rest, ())
                if any(_counts(each, text, pos, start, position, blank) for each in wheres):
                    return None
            for marker in self._beginning_with[hit.group()]:
                if marker.where == "last" and start + len(marker.text) < len(text):
                    continue
                if _counts(marker.where, text, pos, start, position, blank):
                    return start, marker
            hit = self._pattern.search(text, start + 1, end)
        return None

    def near(self, text: str, pos: int, reach: int) -> tuple[int, Marker] | None:
        """The first marker that starts at most `reach` characters after `pos`, with its distance. Complete only if
        `text` extends `longest` characters further, or nothing follows it."""
        hit = self.find(text[pos : pos + reach + self.longest], 0, _ANYWHERE, final=True)
        return hit if hit is not None and hit[0] <= reach else None

    def may_grow(self, text: str, pos: int, marker: Marker) -> bool:
        """Whether `marker` at `pos` may turn out to be a longer one."""
        return marker.text in self._nested and self.begins_at(text, pos)

    def at(self, text: str, pos: int) -> Marker | None:
        """The complete marker at `pos`, regardless of its condition."""
        hit = self._pattern.match(text, pos) if self._pattern is not None else None
        return self._by_text[hit.group()][0] if hit is not None else None

    def beginning(self, text: str) -> list[Marker]:
        """The markers that begin with `text`."""
        return [same[0] for marker, same in self._by_text.items() if marker.startswith(text)]

    def begins_at(self, text: str, pos: int) -> bool:
        """Whether `text` ends with a prefix of a marker that starts at `pos`."""
        return len(text) - pos <= self._reach and text[pos:] in self._prefixes

    def held(self, text: str, pos: int, position: MarkerContext) -> int:
        """The length of the longest suffix of `text[pos:]` that is a proper prefix of a live marker."""
        end = len(text)
        for start in range(max(pos, end - self._reach), end):
            if text[start] in self.firsts:
                wheres = self._prefixes.get(text[start:])
                if not wheres:
                    continue
                blank = _blank_until(text, pos, position)
                if any(_counts(where, text, pos, start, position, blank) for where in wheres):
                    return end - start
        return 0


_ANYWHERE: Final = MarkerContext()
_BLANK: Final = re.compile(f"[{WHITESPACE}]*")


def _blank_until(text: str, pos: int, position: MarkerContext) -> int:
    """Where the white space ends that the open block consists of; -1 if the block contains more."""
    if not position.fresh:
        return -1
    blank = _BLANK.match(text, pos)
    assert blank is not None, "the pattern matches the empty text"
    return blank.end()


def _counts(
    where: Where, text: str, pos: int, start: int, position: MarkerContext, blank: int
) -> bool:
    if where in ("anywhere", "last"):
        return True
    before = text[start - 1] if start > pos else position.before
    if where == "unquoted":
        return before == "" or before not in QUOTES
    if where == "line" and (before == "\n" or before == ""):
        return True
    return start <= blank
