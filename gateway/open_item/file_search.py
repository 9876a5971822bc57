"""A search in uploaded files, by the gateway."""

from __future__ import annotations

from typing import Literal

from gateway.open_item.item import EndStatus, NextSequence, Out
from gateway.protocols import ToolResult
from gateway.wire import events, items


class OpenFileSearchCall:
    """Shown as a `file_search_call`: what was searched for, and its results, are in the finished item."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        name: str,
        *,
        shows_results: bool = True,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._shows_results = shows_results
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "completed", "failed"],
        result: ToolResult | None = None,
    ) -> items.FileSearchCall:
        details = result.details if result else {}
        results = details.get("results") if self._shows_results else None
        return items.file_search_call(self.id, status, details.get("queries", []), results)

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.FileSearchCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        """The API has no event for it."""
        self._arguments.append(text)

    def written(self, out: Out) -> None:
        """Nothing to tell: see `write`."""

    def running(self, out: Out) -> None:
        out.append(
            events.FileSearchCallSearching(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, result: ToolResult, out: Out) -> items.FileSearchCall:
        out.append(
            events.FileSearchCallCompleted(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> items.FileSearchCall:
        return self._done(self._item("failed"), out)

    def _done(self, item: items.FileSearchCall, out: Out) -> items.FileSearchCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
