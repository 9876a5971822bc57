"""Builders of searches that the gateway runs: `web_search_call` and `file_search_call`."""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET

from gateway.items.builders.events import ProgressEvent
from gateway.items.builders.item import EndStatus, ServerCallBuilder
from gateway.plugins.protocols import FileSearchDetails, SearchDetails, ToolResult
from gateway.wire import events, items

SearchStatus = Literal["in_progress", "searching", "completed", "failed"]
ItemT = TypeVar("ItemT", bound=items.WebSearchCall | items.FileSearchCall)


class SearchCallBuilder(ServerCallBuilder, Generic[ItemT]):
    """Builds a search call. Query and results are in the finished item. A search has three events without content; the
    API has no events for its arguments."""

    in_progress_event: ClassVar[ProgressEvent]
    searching_event: ClassVar[ProgressEvent]
    completed_event: ClassVar[ProgressEvent]

    def __init__(self, item_id: str, name: str, *, shown: bool) -> None:
        """`shown`: whether the finished item shows the results, because `include` requested them."""
        super().__init__(item_id, name)
        self._shown = shown

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("in_progress"), output_index)
            self._progress(self.in_progress_event)

    def running(self) -> None:
        self._progress(self.searching_event)

    def progressed(self) -> None:
        self._progress(self.searching_event)

    def finish(self, result: ToolResult) -> ItemT:
        self._progress(self.completed_event)
        item = self._item("failed" if result.failed else "completed", result)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> ItemT:
        item = self._item("failed")
        self._done(item)
        return item

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> ItemT:
        """Return the item with `status`."""
        raise NotImplementedError


class WebSearchCallBuilder(SearchCallBuilder[items.WebSearchCall]):
    """Builds a `web_search_call` for a search or an opened page. `shown` refers to the action's sources."""

    in_progress_event = events.WebSearchCallInProgress
    searching_event = events.WebSearchCallSearching
    completed_event = events.WebSearchCallCompleted

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.WebSearchCall:
        details = result.details if result else None
        action = (
            details.action if isinstance(details, SearchDetails) else items.SearchAction(query="")
        )
        if isinstance(action, items.SearchAction) and not self._shown:
            action = msgspec.structs.replace(action, sources=UNSET)
        return items.WebSearchCall(id=self.id, status=status, action=action)


class FileSearchCallBuilder(SearchCallBuilder[items.FileSearchCall]):
    """Builds a `file_search_call`. `shown` refers to its results."""

    in_progress_event = events.FileSearchCallInProgress
    searching_event = events.FileSearchCallSearching
    completed_event = events.FileSearchCallCompleted

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.FileSearchCall:
        details = result.details if result else None
        if not isinstance(details, FileSearchDetails):
            return items.FileSearchCall(id=self.id, status=status, queries=[])
        results = list(details.results) if self._shown and details.results is not None else None
        return items.FileSearchCall(
            id=self.id, status=status, queries=list(details.queries), results=results
        )
