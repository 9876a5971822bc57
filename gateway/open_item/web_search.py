"""A call that is shown as a `web_search_call`."""

from __future__ import annotations

from typing import Literal

from gateway.open_item.item import EndStatus, NextSequence, Out
from gateway.protocols import ToolResult
from gateway.wire import events, items


class OpenWebSearchCall:
    """A search, or a page opened, by the gateway, shown as a `web_search_call`."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        name: str,
        *,
        shows_sources: bool = True,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._shows_sources = shows_sources
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "searching", "completed", "failed"],
        result: ToolResult | None = None,
    ) -> items.WebSearchCall:
        action = (result.details.get("action") if result else None) or {
            "type": "search",
            "query": "",
        }
        if not self._shows_sources:
            action = {key: value for key, value in action.items() if key != "sources"}
        return items.web_search_call(self.id, status, action)

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.WebSearchCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        """The API shows what was searched in the finished item, not as it is written."""
        self._arguments.append(text)

    def written(self, out: Out) -> None:
        """Nothing to tell: see `write`."""

    def running(self, out: Out) -> None:
        out.append(
            events.WebSearchCallSearching(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, result: ToolResult, out: Out) -> items.WebSearchCall:
        out.append(
            events.WebSearchCallCompleted(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> items.WebSearchCall:
        return self._done(self._item("failed"), out)

    def _done(self, item: items.WebSearchCall, out: Out) -> items.WebSearchCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
