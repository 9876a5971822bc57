"""Data of calls that are written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet, check_distinct


class JsonShape(Struct, frozen=True, kw_only=True, dict=True):
    """Markers and keys of the calls. A start marker is followed by one object, several, or a list of them."""

    start: str
    """Empty if calls are bare JSON."""
    end: str
    """Empty if calls end with their JSON."""
    more_starts: tuple[str, ...] = ()
    more_ends: tuple[str, ...] = ()
    bare_starts: tuple[str, ...] = ()
    """Starts that are also ordinary text. One that ends with a bracket belongs to the JSON itself."""
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    wrapper_keys: tuple[str, ...] = ("function",)
    """Keys that may hold name and arguments one level deeper; a string there is the name."""
    other_keys: tuple[str, ...] = ("id", "type", "tool_call_id", "call_id")
    """Other keys that a bare call may start with. An object that starts with any other key is a JSON answer."""
    name_is_key: bool = False
    """Whether an object's single key is the name and its value the arguments."""
    make_id: Callable[[], str] | None = None
    """Creates call ids for families whose prompts restrict them."""

    def __post_init__(self) -> None:
        check_distinct(self.starts, self.ends)

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

    @cached_property
    def stops(self) -> MarkerSet:
        """Markers that end a call's JSON early when outside a string."""
        opening = (text for text in self.starts if text not in self.bare)
        return MarkerSet(Marker(text, "stop") for text in (*opening, *self.ends, *self.more_ends))

    @cached_property
    def first_keys(self) -> frozenset[str]:
        """Keys that a bare call may start with."""
        return frozenset(
            (*self.name_keys, *self.argument_keys, *self.wrapper_keys, *self.other_keys)
        )
