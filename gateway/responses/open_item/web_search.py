"""A call that is shown as a `web_search_call`."""

from __future__ import annotations

from gateway.protocols import ToolResult
from gateway.responses.open_item.search_call import OpenSearchCall, SearchStatus
from gateway.wire import events, items


class OpenWebSearchCall(OpenSearchCall[items.WebSearchCall]):
    """A search, or a page opened, by the gateway. What is `shown` or not are the action's sources."""

    in_progress = events.WebSearchCallInProgress
    searching = events.WebSearchCallSearching
    completed = events.WebSearchCallCompleted

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.WebSearchCall:
        action = (result.details.get("action") if result else None) or {
            "type": "search",
            "query": "",
        }
        if not self._shown:
            action = {key: value for key, value in action.items() if key != "sources"}
        return items.web_search_call(self.id, status, action)
