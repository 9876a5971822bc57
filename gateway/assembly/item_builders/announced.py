"""What all announcing item builders have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Protocol

from gateway.assembly.item_builders.item import ItemBuilder
from gateway.deltas import Delta, ReasoningDelta, TextDelta
from gateway.wire import events, items
from gateway.wire.common import ENCODER
from gateway.wire.delta_frame import DeltaFrame

EventList = list[events.Event]
_encode = ENCODER.encode


class EventCollector:
    """Numbers the events of a response, and collects those of one step."""

    __slots__ = ("_head", "_kind", "_middle", "_tail", "_text", "next", "out")

    def __init__(self) -> None:
        self.next: Callable[[], int] = itertools.count().__next__
        """Returns the next sequence number."""
        self.out: EventList = []
        """The events of this step."""
        self._kind: type[TextDelta | ReasoningDelta] | None = None
        """The kind of the deltas that are more of the open text, if one is open."""

    def continue_from(self, number: int) -> None:
        """Give the next event the sequence number `number`."""
        self.next = itertools.count(number).__next__

    def begin_step(self) -> EventList:
        """Begin a step. Returns the list to which its events will be appended."""
        self._kind = None
        self.out = []
        return self.out

    def open_text(
        self, kind: type[TextDelta | ReasoningDelta], text: StringIO, frame: DeltaFrame
    ) -> None:
        """Until the next step, deltas of `kind` are more of `text`, and their events are those of `frame`."""
        self.out = []  # the step's events are the caller's
        self._kind, self._text = kind, text
        self._head, self._middle, self._tail = frame

    def more_text(self, deltas: Sequence[Delta]) -> bytes | None:
        """Append `deltas` to the open text and return their event as it is sent, if they are one delta of its kind; otherwise None.

        Nearly every token takes this path. What it touches is in this one object: a stream's memory is seldom in the processor's
        caches when its next token comes.
        """
        if len(deltas) != 1 or type(delta := deltas[0]) is not self._kind:
            return None
        text: str = delta.text
        self._text.write(text)
        return b"%b%d%b%b%b" % (self._head, self.next(), self._middle, _encode(text), self._tail)


class ProgressEvent(Protocol):
    """The class of an event that has no content."""

    def __call__(
        self, *, sequence_number: int, item_id: str, output_index: int
    ) -> events.Event: ...


class Announced(ItemBuilder):
    """Announces the item that another class builds: each change is an event. `output_item.done` has the finished item
    itself."""

    events: EventCollector

    def _added(self, item: items.Item) -> None:
        self.events.out.append(
            events.OutputItemAdded(
                sequence_number=self.events.next(), output_index=self.output_index, item=item
            )
        )

    def _done(self, item: items.Item) -> None:
        self.events.out.append(
            events.OutputItemDone(
                sequence_number=self.events.next(), output_index=self.output_index, item=item
            )
        )

    def _progress(self, event: ProgressEvent) -> None:
        self.events.out.append(
            event(
                sequence_number=self.events.next(), item_id=self.id, output_index=self.output_index
            )
        )
