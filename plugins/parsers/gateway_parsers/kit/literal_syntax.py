"""How families write literals: nearly JSON, with strings and words of their own."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet


class Quote(NamedTuple):
    """How strings may be marked."""

    mark: str
    """Begins and ends it."""
    escapes: bool
    """Backslashes escape, and a mark inside that nothing of the syntax follows is meant as text."""


class LiteralSyntax(Struct, frozen=True, kw_only=True, dict=True):
    """A literal syntax: brackets, commas and colons as in JSON, with strings of its own, and words for all else."""

    quotes: tuple[Quote, ...]
    stops: MarkerSet = MarkerSet(())
    """What ends a value early, in whose strings it stands only if their own end follows."""
    loose: str = ""
    """The mark that models also write for a quotation mark inside a string, or leave out before one."""
    coerces_strings: bool = False
    """A string where the schema allows none is meant as what the schema says."""

    @cached_property
    def marks(self) -> MarkerSet:
        return MarkerSet(Marker(quote.mark, "open") for quote in self.quotes)

    @cached_property
    def escapes(self) -> dict[str, bool]:
        return {quote.mark: quote.escapes for quote in self.quotes}

    @cached_property
    def ends(self) -> dict[str, re.Pattern[str]]:
        """What is not plain text inside a string."""
        firsts = re.escape(self.stops.firsts)
        return {
            quote.mark: re.compile(
                f"[{re.escape(quote.mark[0])}{firsts}{chr(92) * 2 * quote.escapes}]"
            )
            for quote in self.quotes
        }

    @cached_property
    def word_ends(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """What ends a value that is a word, and a key that is one."""
        firsts = re.escape(self.stops.firsts)
        brackets = r"\[\](){}"
        return re.compile(f"[,{brackets}{firsts}]"), re.compile(f"[,:={brackets}{firsts}]")


PYTHON: Final = LiteralSyntax(
    quotes=(Quote('"""', True), Quote("'''", True), Quote('"', True), Quote("'", True)),
    coerces_strings=True,
)
