"""Which markers are live in which state of the machine."""

from __future__ import annotations

from typing import NamedTuple

from gateway_parsers.kit.markers import Marker, MarkerSet, Where
from gateway_parsers.spec import TURN_ENDS, FormatSpec


class State(NamedTuple):
    """What decides which markers are live."""

    inside: bool
    """Inside reasoning; otherwise in text."""
    calls: bool
    """Calls are read."""
    ended_by_call: bool = False
    """Reasoning was never closed, a call ended it: its close marker may still come, and is not shown."""
    unclosed_call: bool = False
    """A call's end marker is missing: it may still come, and is not shown."""
    framed: bool = False
    """Text stands in markup of its own."""


class LiveMarkers:
    """The marker sets of one format, made once each."""

    def __init__(self, spec: FormatSpec) -> None:
        self._spec = spec
        self._sets: dict[State, MarkerSet] = {}

    def of(self, state: State) -> MarkerSet:
        """The markers that are live in `state`."""
        found = self._sets.get(state)
        if found is None:
            found = self._sets[state] = MarkerSet(self._markers(state))
        return found

    def _markers(self, state: State) -> list[Marker]:
        markers: list[Marker] = []
        frame = self._spec.frame
        if frame is not None and not state.inside:
            ends_here = frame.special or state.framed
            opens: Where = "anywhere" if ends_here else "line"
            markers += [Marker(text, "frame", opens) for text in frame.opens]
            if ends_here:
                markers += [Marker(text, "frame") for text in frame.closes]
        marks = self._spec.reasoning
        if marks is not None and state.inside:
            markers += [Marker(text, "close") for text in marks.closes]
            markers += [Marker(text, "swallow", "fresh") for text in marks.opens]
        elif marks is not None:
            markers += [Marker(text, "open", marks.open_where) for text in marks.opens]
            late: Where = "anywhere" if state.ended_by_call else "line"
            markers += [Marker(text, "swallow", late) for text in marks.closes]
        syntax = self._spec.calls
        if syntax is not None and state.calls:
            for start in syntax.starts:
                if start not in syntax.bare:
                    where: Where = "unquoted" if state.inside else "anywhere"
                    markers.append(Marker(start, "call", where))
                elif not state.inside:
                    markers.append(Marker(start, "call", "unquoted"))
            for end in () if state.inside else syntax.ends:
                late = "anywhere" if state.unclosed_call else "fresh"
                markers.append(Marker(end, "swallow", late))
        markers += [Marker(text, "hide") for text in self._spec.hidden]
        if marks is not None or syntax is not None:
            taken = {marker.text for marker in markers}
            markers += [
                Marker(text, "turn_end", "last")
                for text in (*TURN_ENDS, *self._spec.turn_ends)
                if text not in taken
            ]
        return markers
