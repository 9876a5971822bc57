"""Markers of calls, common to several syntaxes."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct


class MarkedCalls(Struct, frozen=True, kw_only=True, dict=True):
    """The markers around calls."""

    start: str = ""
    """Empty if the calls start with their own first bracket."""
    end: str = ""
    """Empty if calls end by themselves."""
    more_starts: tuple[str, ...] = ()
    bare_starts: tuple[str, ...] = ()
    """Starts that are also ordinary text. One that ends with a bracket belongs to the call itself."""

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(text for text in (self.start, *self.more_starts, *self.bare_starts) if text)

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.end,) if self.end else ()

    @cached_property
    def bare(self) -> frozenset[str]:
        return frozenset(self.bare_starts)

    @property
    def markup(self) -> tuple[str, ...]:
        return tuple(text for text in (*self.starts, *self.ends) if text not in self.bare)
