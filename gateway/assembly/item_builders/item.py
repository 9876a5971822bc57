"""What all item builders have in common."""

from __future__ import annotations

from typing import Literal

from gateway.assembly.item_builders.events import EventCollector, ProgressEvent
from gateway.protocols import ToolResult
from gateway.wire import items

EndStatus = Literal["completed", "incomplete"]


class ItemBuilder:
    """Builds one output item, and its events if they are sent. `output_item.done` has the finished item itself.

    Not an `ABC`, whose `isinstance` is slow: it is asked for tokens.
    """

    id: str
    output_index: int
    events: EventCollector | None = None
    """Receives the events. None if no client sees them."""

    def begin(self, output_index: int) -> None:
        """Begin the item as output item `output_index`. Called once, first, when `events` is set."""
        self.output_index = output_index

    def close(self, status: EndStatus) -> items.Item:
        """The finished item."""
        raise NotImplementedError

    def _done(self, item: items.Item) -> None:
        if self.events is not None:
            self.events.done(item, self.output_index)

    def _progress(self, event: ProgressEvent) -> None:
        if self.events is not None:
            self.events.progress(event, self.id, self.output_index)


class ServerCallBuilder(ItemBuilder):
    """Builds a call that the gateway runs: it is written, run, and finished with its result."""

    def __init__(self, item_id: str, name: str, *, approval_request_id: str | None = None) -> None:
        """`name` is the name that the model sees."""
        self.id = item_id
        self.name = name
        self.approval_request_id = approval_request_id
        """Id of the request with which the client approved the call, if approval was needed."""
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them: JSON text."""
        return "".join(self._arguments)

    def write(self, text: str) -> None:
        """Append `text` to the arguments."""
        self._arguments.append(text)

    def written(self) -> None:
        """Mark the arguments as complete."""

    def running(self) -> None:
        """Mark the call as running. The item does not show it; some types have an event for it."""

    def progressed(self) -> None:
        """Mark the running call as making progress, likewise."""

    def finish(self, result: ToolResult) -> items.Item:
        """The finished item, with the call's result. `close` is for a call that has none, because the answer ends."""
        raise NotImplementedError
