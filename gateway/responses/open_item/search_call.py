"""What searches of the gateway have in common: the item tells nothing until it is finished."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Literal, TypeVar

from gateway.protocols import ToolResult
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.wire import events, items

SearchStatus = Literal["in_progress", "searching", "completed", "failed"]
ItemT = TypeVar("ItemT", items.WebSearchCall, items.FileSearchCall)


class OpenSearchCall(ABC, Generic[ItemT]):
    """A call whose life is three events without content. What was searched and found is in the finished item."""

    in_progress: ClassVar[Any]
    """The classes of the three events, each made of a sequence number, an item's id and an output index."""
    searching: ClassVar[Any]
    completed: ClassVar[Any]

    def __init__(
        self, item_id: str, output_index: int, sequence: NextSequence, name: str, *, shown: bool
    ) -> None:
        """`shown`: whether the client asked, by `include`, to see what was found."""
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._shown = shown
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    @abstractmethod
    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> ItemT:
        """The item as it is in `status`."""

    def _event(self, made: Any) -> events.Event:
        event: events.Event = made(
            sequence_number=self._next(), item_id=self.id, output_index=self.output_index
        )
        return event

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            )
        )
        out.append(self._event(self.in_progress))

    def write(self, text: str, out: Out) -> None:
        """The API has no event for it."""
        self._arguments.append(text)

    def written(self, out: Out) -> None:
        """Nothing to tell: see `write`."""

    def running(self, out: Out) -> None:
        out.append(self._event(self.searching))

    def finish(self, result: ToolResult, out: Out) -> ItemT:
        out.append(self._event(self.completed))
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> ItemT:
        return self._done(self._item("failed"), out)

    def _done(self, item: ItemT, out: Out) -> ItemT:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
