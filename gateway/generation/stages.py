"""The stages that deltas pass between the parser and the writer of a generation. A generation has only those it
needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.base.deltas import CallEnded, Delta
from gateway.generation.policies import OutputFilters
from gateway.generation.text_stops import TextStops
from gateway.plugins.protocols import FinishReason


class Stage(Protocol):
    """Passes on deltas, possibly later or changed, and may end the output."""

    ended: FinishReason | None
    """Why the stage ended the output; None if it did not."""
    matched: str | None
    """The stop string that ended the output, if any."""

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        """Read `deltas`, and return the deltas that are passed on. `searching`: whether stop strings are matched."""
        ...

    def finish(self, held: Sequence[Delta]) -> Sequence[Delta]:
        """Return the deltas that are passed on at the end of the output. `held` are the last deltas of the previous
        stage."""
        ...


class OneCall:
    """Ends the output after its first call, as required by `parallel_tool_calls: false`. Implements `Stage`."""

    def __init__(self) -> None:
        self.ended: FinishReason | None = None
        self.matched: str | None = None

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        for index, delta in enumerate(deltas):
            if isinstance(delta, CallEnded):
                self.ended = "stop"
                return deltas[: index + 1]
        return deltas

    def finish(self, held: Sequence[Delta]) -> Sequence[Delta]:
        return held


class Stopping:
    """Ends the output at a stop string, or where a policy's filter ends it. Implements `Stage`."""

    def __init__(self, stops: TextStops | OutputFilters) -> None:
        self.ended: FinishReason | None = None
        self.matched: str | None = None
        self._stops = stops

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        stops = self._stops
        passed = stops.read(deltas, searching=searching)
        self.ended, self.matched = stops.ended, stops.matched
        return passed

    def finish(self, held: Sequence[Delta]) -> Sequence[Delta]:
        stops = self._stops
        passed = [*stops.read(held), *stops.rest()]
        self.ended, self.matched = stops.ended, stops.matched
        return passed
