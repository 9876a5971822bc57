"""Data of literal syntaxes: similar to JSON, with other strings and literals."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet


class Quote(NamedTuple):
    """A way to delimit strings."""

    mark: str
    """The opening and closing delimiter."""
    escapes: bool
    """Whether backslashes escape. Then a delimiter not followed by syntax is text."""


class LiteralSyntax(Struct, frozen=True, kw_only=True, dict=True):
    """A literal syntax: brackets, commas and colons as in JSON, other strings, and words for everything else."""

    quotes: tuple[Quote, ...]
    stops: MarkerSet = MarkerSet(())
    """Markers that end a value early. Inside a string they are text only if the string's own end follows."""
    lenient_mark: str = ""
    """A delimiter that models also write as a quotation mark inside a string, or omit at its start."""
    sets: bool = False
    """Whether braces may enclose a set, which becomes a list, and numbers may start with zeros."""
    coerces_strings: bool = False
    """Whether strings are converted to the schema's type if it does not allow strings."""

    @cached_property
    def marks(self) -> MarkerSet:
        return MarkerSet(Marker(quote.mark, "open") for quote in self.quotes)

    @cached_property
    def escapes(self) -> dict[str, bool]:
        return {quote.mark: quote.escapes for quote in self.quotes}

    @cached_property
    def ends(self) -> dict[str, re.Pattern[str]]:
        """Patterns for what is not plain text inside a string."""
        firsts = re.escape(self.stops.firsts)
        return {
            quote.mark: re.compile(
                f"[{re.escape(quote.mark[0])}{firsts}{chr(92) * 2 * quote.escapes}]"
            )
            for quote in self.quotes
        }

    @cached_property
    def word_ends(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Patterns for the end of a word value and of a word key."""
        firsts = re.escape(self.stops.firsts)
        brackets = r"\[\](){}"
        return re.compile(f"[,{brackets}{firsts}]"), re.compile(f"[,:={brackets}{firsts}]")


PYTHON: Final = LiteralSyntax(
    quotes=(Quote('"""', True), Quote("'''", True), Quote('"', True), Quote("'", True)),
    sets=True,
    coerces_strings=True,
)
