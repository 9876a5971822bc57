"""Which markers are live in which state of the machine."""

from __future__ import annotations

from typing import NamedTuple

from gateway_parsers.kit.markers import Marker, MarkerSet
from gateway_parsers.spec import FormatSpec


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
        marks = self._spec.reasoning
        if marks is not None and state.inside:
            markers.append(Marker(marks.close, "close"))
            markers.append(Marker(marks.open, "swallow", "fresh"))
        elif marks is not None:
            markers.append(Marker(marks.open, "open", "line"))
            late = Marker(marks.close, "swallow", "anywhere" if state.ended_by_call else "fresh")
            markers.append(late)
        syntax = self._spec.calls
        if syntax is not None and state.calls:
            for start in syntax.starts:
                markers.append(Marker(start, "call", "unquoted" if state.inside else "anywhere"))
            for end in () if state.inside else syntax.ends:
                late = Marker(end, "swallow", "anywhere" if state.unclosed_call else "fresh")
                markers.append(late)
        return markers
