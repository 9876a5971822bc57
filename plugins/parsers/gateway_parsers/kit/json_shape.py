"""Data of calls that are written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from gateway_parsers.kit.marked_calls import MarkedCalls
from gateway_parsers.kit.markers import Marker, MarkerSet, check_distinct


class JsonShape(MarkedCalls, frozen=True, kw_only=True):
    """Markers and keys of the calls. A start marker is followed by one object, several, or a list of them."""

    more_ends: tuple[str, ...] = ()
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

    @cached_property
    def stops(self) -> MarkerSet:
        """Markers that end a call's JSON early when outside a string."""
        opening = (text for text in self.starts if text not in self.bare)
        return MarkerSet(Marker(text, "stop") for text in (*opening, *self.ends, *self.more_ends))

    @cached_property
    def ignored_keys(self) -> frozenset[str]:
        """Keys beside the name that are never arguments."""
        return frozenset((*self.name_keys, *self.wrapper_keys, *self.other_keys, "index"))

    @cached_property
    def first_keys(self) -> frozenset[str]:
        """Keys that a bare call may start with."""
        return frozenset(
            (*self.name_keys, *self.argument_keys, *self.wrapper_keys, *self.other_keys)
        )
