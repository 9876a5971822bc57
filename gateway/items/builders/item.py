"""The base classes of item builders."""

from __future__ import annotations

from typing import Literal

from gateway.items.builders.events import EventCollector, ProgressEvent
from gateway.plugins.protocols import ToolResult
from gateway.wire import items

EndStatus = Literal["completed", "incomplete"]


class ItemBuilder:
    """Builds one output item, and its events if they are sent. `output_item.done` contains the finished item itself.

    Not an `ABC`, because `isinstance` is slow for those, and it is called for each token.
    """

    id: str
    output_index: int
    events: EventCollector | None = None
    """Receives the events. None if no client sees them."""

    def begin(self, output_index: int) -> None:
        """Begin the item, at `output_index` of the output. Called once, before the other methods and after `events` is
        set."""
        self.output_index = output_index

    def close(self, status: EndStatus) -> items.Item:
        """Close the item with `status`. Returns the finished item."""
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
        """Mark the call as running. The item does not show this, but some types have an event for it."""

    def progressed(self) -> None:
        """Report progress of the running call. The item does not show this, but some types have an event for it."""

    def finish(self, result: ToolResult) -> items.Item:
        """Finish the call with its result. Returns the finished item. If the answer ends before the call has a result,
        `close` is called instead."""
        raise NotImplementedError
