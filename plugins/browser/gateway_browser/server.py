"""The browser as a tool server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import UNSET, UnsetType

from gateway.sdk import InvalidRequest, ServerTool, SessionContext, ToolServer, ToolSession
from gateway.sdk.wire import UserLocation, WebSearchFilters, WebSearchTool
from gateway_browser.arguments import FIND, OPEN, SEARCH, built_in
from gateway_browser.config import BrowserConfig
from gateway_browser.domains import Domain, DomainFilter, read_domains
from gateway_browser.fetching import PageFetcher
from gateway_browser.providers import QueryLocation, SearchProvider
from gateway_browser.reader import PageReader
from gateway_browser.session import BrowserSession, BrowserSettings


class BrowserServer(ToolServer):
    """The tools of the browser. A request's `web_search` entry has settings for them."""

    label = "browser"

    def __init__(
        self,
        config: BrowserConfig,
        provider: SearchProvider,
        fetcher: PageFetcher,
        reader: PageReader,
    ) -> None:
        self._config = config
        self._provider = provider
        self._fetcher = fetcher
        self._reader = reader

    async def tools(self) -> Sequence[ServerTool]:
        return [
            ServerTool(
                definition=tool,
                builtin=built_in(name, tool),
                # The session's own timeout comes first and gives a more specific message.
                time_limit=self._config.time_limit * 2 + self._config.reading_time + 5,
                output_limit=self._config.output_limit,
                request_type="web_search",
                item_type="web_search_call",
            )
            for name, tool in (("search", SEARCH), ("open", OPEN), ("find", FIND))
        ]

    def check(self, context: SessionContext) -> None:
        tool_settings(context)

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[ToolSession]:
        yield BrowserSession(
            self._config,
            self._provider,
            self._fetcher,
            self._reader,
            tool_settings(context),
            context.calls,
        )


def tool_settings(context: SessionContext) -> BrowserSettings:
    """The settings in a request's entry. Raises `InvalidRequest`, with a `param` relative to the entry."""
    tool, owner = context.entry, context.owner or ""
    if not isinstance(tool, WebSearchTool):
        return BrowserSettings(owner=owner)
    # Codex requests text and images for multimodal models; text results satisfy that.
    if tool.search_content_types is not UNSET and "text" not in tool.search_content_types:
        raise InvalidRequest(
            "This server searches for text alone. Leave search_content_types out, or have 'text' in it.",
            param="search_content_types",
            code="unsupported_value",
        )
    filters = WebSearchFilters() if tool.filters is UNSET else tool.filters
    domains = DomainFilter(
        allowed=_domains(filters.allowed_domains, "allowed_domains"),
        blocked=_domains(filters.blocked_domains, "blocked_domains"),
    )
    location = tool.user_location
    size = tool.search_context_size
    return BrowserSettings(
        owner=owner,
        domains=domains,
        location=QueryLocation() if location is UNSET else _location(location),
        size="medium" if size is UNSET else size,
    )


def _domains(given: list[str] | UnsetType, name: str) -> tuple[Domain, ...]:
    return () if given is UNSET else read_domains(given, ("filters", name))


def _location(location: UserLocation) -> QueryLocation:
    def empty_as_none(value: Any) -> str | None:
        return value if isinstance(value, str) and value else None

    return QueryLocation(
        country=empty_as_none(location.country),
        region=empty_as_none(location.region),
        city=empty_as_none(location.city),
        timezone=empty_as_none(location.timezone),
    )
