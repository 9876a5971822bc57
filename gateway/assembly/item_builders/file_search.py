"""Builder of `file_search_call` items."""

from __future__ import annotations

from gateway.assembly.item_builders.search_call import (
    AnnouncedSearchCall,
    SearchCallBuilder,
    SearchStatus,
)
from gateway.protocols import FileSearchDetails, ToolResult
from gateway.wire import events, items


class FileSearchCallBuilder(SearchCallBuilder[items.FileSearchCall]):
    """Builds a `file_search_call` for a search that the gateway runs. `shown` controls its results."""

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.FileSearchCall:
        details = result.details if result else None
        if not isinstance(details, FileSearchDetails):
            return items.FileSearchCall(id=self.id, status=status, queries=[])
        results = list(details.results) if self._shown and details.results is not None else None
        return items.FileSearchCall(
            id=self.id, status=status, queries=list(details.queries), results=results
        )


class AnnouncedFileSearchCall(FileSearchCallBuilder, AnnouncedSearchCall[items.FileSearchCall]):
    """Announces a `file_search_call`."""

    in_progress = events.FileSearchCallInProgress
    searching = events.FileSearchCallSearching
    completed = events.FileSearchCallCompleted
