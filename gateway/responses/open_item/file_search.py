"""A call that is shown as a `file_search_call`."""

from __future__ import annotations

from gateway.protocols import ToolResult
from gateway.responses.open_item.search_call import OpenSearchCall, SearchStatus
from gateway.wire import events, items


class OpenFileSearchCall(OpenSearchCall[items.FileSearchCall]):
    """A search in uploaded files, by the gateway. What is `shown` or not are its results."""

    in_progress = events.FileSearchCallInProgress
    searching = events.FileSearchCallSearching
    completed = events.FileSearchCallCompleted

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.FileSearchCall:
        details = result.details if result else {}
        results = details.get("results") if self._shown else None
        return items.file_search_call(self.id, status, details.get("queries", []), results)
