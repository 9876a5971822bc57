"""What all announcing item builders have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from gateway.assembly.item_builders.item import ItemBuilder
from gateway.wire import events, items

EventList = list[events.Event]


class EventCollector:
    """Numbers the events of a response, and collects those of one step."""

    __slots__ = ("next", "out")

    def __init__(self) -> None:
        self.next: Callable[[], int] = itertools.count().__next__
        """Returns the next sequence number."""
        self.out: EventList = []
        """The events of this step."""

    def continue_from(self, number: int) -> None:
        """Give the next event the sequence number `number`."""
        self.next = itertools.count(number).__next__

    def begin_step(self) -> EventList:
        """Begin a step. Returns the list to which its events will be appended."""
        self.out = []
        return self.out


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
