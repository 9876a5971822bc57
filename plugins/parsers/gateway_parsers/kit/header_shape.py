"""The data of calls with the name in a header of its own, and JSON arguments behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet


class HeaderShape(Struct, frozen=True, kw_only=True, dict=True):
    """How calls of this kind are marked: `section`, then for each call `call`, a header, `separator`, JSON, `call_end`."""

    section: str = ""
    """Empty: calls stand by themselves."""
    section_end: str = ""
    call: str
    call_end: str = ""
    """Empty: the end of the JSON ends the call."""
    separators: tuple[str, ...] = ()
    """What ends the header, or a part of it."""
    opens: tuple[str, ...] = ("{",)
    """What the JSON begins with, which ends the header too."""
    fences: tuple[str, ...] = ()
    """What may stand around the JSON, and says nothing."""
    label: Callable[[list[str], Collection[str]], tuple[str, str | None]]
    """The parts of a header, made into name and id (None: the assembler makes one), in view of the tools' names. An empty
    name is none."""

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(text for text in (self.section, self.call) if text)

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(text for text in (self.call_end, self.section_end) if text)

    @property
    def bare(self) -> frozenset[str]:
        return frozenset()

    @property
    def markup(self) -> tuple[str, ...]:
        return (*self.starts, *self.separators, *self.ends)

    @cached_property
    def outside(self) -> MarkerSet:
        """What may stand before a call."""
        return _markers(
            {
                self.call: "open",
                self.section: "call",
                self.call_end: "swallow",
                self.section_end: "stop",
            }
        )

    @cached_property
    def header(self) -> MarkerSet:
        """What ends a part of the header, or all of it."""
        fences = dict.fromkeys(self.fences, "swallow")
        return _markers(
            {**fences, **dict.fromkeys(self.separators, "head"), **dict.fromkeys(self.opens, "open"),
             **dict.fromkeys((self.call_end, self.section_end, self.call, self.section), "stop")}
        )  # fmt: skip

    @cached_property
    def stops(self) -> MarkerSet:
        """What ends the JSON early where it stands outside a string."""
        return _markers(dict.fromkeys((*self.starts, *self.ends), "stop"))

    @cached_property
    def behind(self) -> MarkerSet:
        """What may follow the JSON."""
        fences = dict.fromkeys(self.fences, "swallow")
        return _markers(
            {**fences, self.call_end: "close", self.section_end: "stop", self.call: "open"}
        )


def _markers(actions: dict[str, str]) -> MarkerSet:
    return MarkerSet(Marker(text, action) for text, action in actions.items() if text)  # type: ignore[arg-type]
