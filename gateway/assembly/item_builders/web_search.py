"""Builder of `web_search_call` items."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from gateway.assembly.item_builders.search_call import (
    AnnouncedSearchCall,
    SearchCallBuilder,
    SearchStatus,
)
from gateway.protocols import SearchDetails, ToolResult
from gateway.wire import events, items


class WebSearchCallBuilder(SearchCallBuilder[items.WebSearchCall]):
    """Builds a `web_search_call` for a search or an opened page. `shown` controls the action's sources."""

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> items.WebSearchCall:
        details = result.details if result else None
        action = (
            details.action if isinstance(details, SearchDetails) else items.SearchAction(query="")
        )
        if isinstance(action, items.SearchAction) and not self._shown:
            action = msgspec.structs.replace(action, sources=UNSET)
        return items.WebSearchCall(id=self.id, status=status, action=action)


class AnnouncedWebSearchCall(WebSearchCallBuilder, AnnouncedSearchCall[items.WebSearchCall]):
    """Announces a `web_search_call`."""

    in_progress = events.WebSearchCallInProgress
    searching = events.WebSearchCallSearching
    completed = events.WebSearchCallCompleted
