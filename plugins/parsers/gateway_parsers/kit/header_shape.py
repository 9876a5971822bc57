"""Data of calls with the name in a separate header, followed by JSON arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

from msgspec import Struct

from gateway_parsers.kit.markers import Marker, MarkerSet, check_distinct


class HeaderShape(Struct, frozen=True, kw_only=True, dict=True):
    """The markup: `section`, then for each call `call`, a header, `separator`, JSON, `call_end`."""

    section: str = ""
    """Empty if calls have no section."""
    section_end: str = ""
    call: str
    call_end: str = ""
    """Empty if the end of the JSON ends the call."""
    separators: tuple[str, ...] = ()
    """Separators that end the header or a part of it."""
    opens: tuple[str, ...] = ("{",)
    """First characters of the JSON, which also end the header."""
    fences: tuple[str, ...] = ()
    """Code fences that may surround the JSON and are ignored."""
    arguments_after: tuple[str, ...] = ()
    """Markers after which only arguments follow, even if they are no JSON."""
    kinds: tuple[str, ...] = ()
    """What may be in place of the name before such a marker. The name is then the line after it."""
    label: Callable[[list[str], Collection[str]], tuple[str, str | None]]
    """Converts the parts of a header to a name and an id, given the tools' names.

    The id is None if the assembler should create one. An empty name means no call.
    """

    def __post_init__(self) -> None:
        check_distinct(self.starts, self.ends)

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
        fences = (fence for fence in self.fences if fence.startswith("<"))
        return (*self.starts, *self.separators, *fences, *self.ends)

    @cached_property
    def outside(self) -> MarkerSet:
        """Markers that may precede a call."""
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
        """Markers that end the header or a part of it."""
        fences = dict.fromkeys(self.fences, "swallow")
        return _markers(
            {**fences, **dict.fromkeys(self.separators, "head"), **dict.fromkeys(self.opens, "open"),
             **dict.fromkeys((self.call_end, self.section_end, self.call, self.section), "stop")}
        )  # fmt: skip

    @cached_property
    def stops(self) -> MarkerSet:
        """Markers that end the JSON early when outside a string."""
        return _markers(dict.fromkeys((*self.starts, *self.ends), "stop"))

    @cached_property
    def text_stops(self) -> MarkerSet:
        """Markers that end arguments that are no JSON."""
        closing = (fence for fence in self.fences if fence.startswith("<"))
        return _markers(dict.fromkeys((*self.starts, *self.ends, *closing), "stop"))

    @cached_property
    def after_json(self) -> MarkerSet:
        """Markers that may follow the JSON."""
        fences = dict.fromkeys(self.fences, "swallow")
        return _markers(
            {**fences, self.call_end: "close", self.section_end: "stop", self.call: "open"}
        )


def _markers(actions: dict[str, str]) -> MarkerSet:
    return MarkerSet(Marker(text, action) for text, action in actions.items() if text)  # type: ignore[arg-type]
