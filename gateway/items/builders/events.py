"""Collecting the events of a response."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol, TypeAlias

from gateway.wire import events, items

EventList: TypeAlias = list[events.Event]


class ProgressEvent(Protocol):
    """The class of an event without content."""

    def __call__(
        self, *, sequence_number: int, item_id: str, output_index: int
    ) -> events.Event: ...


class EventCollector:
    """Numbers the events of a response, and collects the events of one step."""

    __slots__ = ("next", "out")

    def __init__(self) -> None:
        self.next: Callable[[], int] = itertools.count().__next__
        """Returns the next sequence number."""
        self.out: EventList = []
        """The events of the current step."""

    def continue_from(self, number: int) -> None:
        """Give the next event the sequence number `number`."""
        self.next = itertools.count(number).__next__

    def begin_step(self) -> EventList:
        """Begin a step. Returns the list to which its events will be appended."""
        out: EventList = []
        self.out = out
        return out

    def added(self, item: items.Item, output_index: int) -> None:
        """Append `response.output_item.added`."""
        self.out.append(
            events.OutputItemAdded(
                sequence_number=self.next(), output_index=output_index, item=item
            )
        )

    def done(self, item: items.Item, output_index: int) -> None:
        """Append `response.output_item.done`."""
        self.out.append(
            events.OutputItemDone(sequence_number=self.next(), output_index=output_index, item=item)
        )

    def progress(self, event: ProgressEvent, item_id: str, output_index: int) -> None:
        """Append an event without content about an item."""
        self.out.append(
            event(sequence_number=self.next(), item_id=item_id, output_index=output_index)
        )
