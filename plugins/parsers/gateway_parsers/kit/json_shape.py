"""The data of calls that are written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet


class JsonShape(Struct, frozen=True, kw_only=True, dict=True):
    """How calls of this kind are marked and keyed. One object, several or a list of them stand behind a start marker."""

    start: str
    """Empty: calls are bare JSON."""
    end: str
    """Empty: nothing ends the calls but the end of their JSON."""
    more_starts: tuple[str, ...] = ()
    more_ends: tuple[str, ...] = ()
    bare_starts: tuple[str, ...] = ()
    """Starts that are ordinary text too. Those that end with a bracket are the beginning of the JSON itself."""
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    wrapper_keys: tuple[str, ...] = ("function",)
    """Keys under which name and arguments may stand one level deeper; a string there is the name."""
    other_keys: tuple[str, ...] = ("id", "type", "tool_call_id", "call_id")
    """What else a bare call may begin with: an object that begins with another key is an answer in JSON."""
    name_is_key: bool = False
    """An object has one key, which is the name, and whose value is the arguments."""
    make_id: Callable[[], str] | None = None
    """Makes a call's id, for families whose prompts allow no other."""

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
        """What ends a call's JSON early where it stands outside a string."""
        opening = (text for text in self.starts if text not in self.bare)
        return MarkerSet(Marker(text, "stop") for text in (*opening, *self.ends, *self.more_ends))

    @cached_property
    def first_keys(self) -> frozenset[str]:
        """The keys that a bare call may begin with."""
        return frozenset(
            (*self.name_keys, *self.argument_keys, *self.wrapper_keys, *self.other_keys)
        )
