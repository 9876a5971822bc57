"""What every item that is being written has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from gateway.protocols import ToolResult
from gateway.wire import events, items

Out = list[events.Event]
EndStatus = Literal["completed", "incomplete"]
NextSequence = Callable[[], int]


class OpenItem(Protocol):
    """An item of the output that is not finished."""

    id: str
    output_index: int

    def open(self, out: Out) -> None:
        """Append the events that announce the item."""
        ...

    def close(self, status: EndStatus, out: Out) -> items.Item:
        """Append the events that end the item, its `output_item.done` last; return the finished item."""
        ...


class OpenServerCall(Protocol):
    """A call that the gateway runs: written, then run, then finished with its result."""

    id: str
    output_index: int
    name: str

    @property
    def arguments(self) -> str:
        """What the model wrote: JSON text."""
        ...

    def open(self, out: Out) -> None: ...

    def write(self, text: str, out: Out) -> None: ...

    def written(self, out: Out) -> None:
        """The arguments are complete."""
        ...

    def running(self, out: Out) -> None:
        """The tool has been started."""
        ...

    def finish(self, result: ToolResult, out: Out) -> items.Item:
        """The tool has answered; returns the finished item."""
        ...

    def close(self, status: EndStatus, out: Out) -> items.Item:
        """The response ends before the tool has answered."""
        ...
