"""The browser as a tool server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import UNSET

from gateway.sdk import InvalidRequest, ServerTool, SessionContext, ToolServer, ToolSession
from gateway.sdk.wire import UserLocation, WebSearchTool
from gateway_browser.arguments import FIND, OPEN, SEARCH, built_in
from gateway_browser.config import BrowserConfig
from gateway_browser.fetching import Fetcher
from gateway_browser.providers import QueryLocation, SearchProvider
from gateway_browser.reader import PageReader
from gateway_browser.session import BrowserSession, ToolSettings

_MOST_DOMAINS = 100
"""Maximum number of domains, as at OpenAI."""


class BrowserServer(ToolServer):
    """The tools of the browser. A request's `web_search` entry has settings for them."""

    label = "browser"

    def __init__(
        self,
        config: BrowserConfig,
        provider: SearchProvider,
        fetcher: Fetcher,
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


def tool_settings(context: SessionContext) -> ToolSettings:
    """The settings in a request's entry. Raises `InvalidRequest`, with a `param` relative to the entry."""
    tool, owner = context.entry, context.owner or ""
    if not isinstance(tool, WebSearchTool):
        return ToolSettings(owner=owner)
    # Codex requests text and images for multimodal models; text results satisfy that.
    if tool.search_content_types is not UNSET and "text" not in tool.search_content_types:
        raise InvalidRequest(
            "This server searches for text alone. Leave search_content_types out, or have 'text' in it.",
            param="search_content_types",
            code="unsupported_value",
        )
    domains: list[str] = []
    if tool.filters is not UNSET and tool.filters.allowed_domains is not UNSET:
        given = tool.filters.allowed_domains
        if len(given) > _MOST_DOMAINS:
            raise InvalidRequest(
                f"At most {_MOST_DOMAINS} domains can be allowed, and these are {len(given)}.",
                param=("filters", "allowed_domains"),
                code="array_above_max_length",
            )
        for index, domain in enumerate(given):
            clean = domain.strip().lower().rstrip(".")
            if not clean or any(each in clean for each in "/:@*? "):
                raise InvalidRequest(
                    f"{domain!r} is not a domain. Write it as 'example.com', without scheme and path.",
                    param=("filters", "allowed_domains", index),
                    code="invalid_value",
                )
            domains.append(clean)
    location = tool.user_location
    size = tool.search_context_size
    return ToolSettings(
        owner=owner,
        domains=tuple(domains),
        location=QueryLocation() if location is UNSET else _location(location),
        size="medium" if size is UNSET else size,
    )


def _location(location: UserLocation) -> QueryLocation:
    def empty_as_none(value: Any) -> str | None:
        return value if isinstance(value, str) and value else None

    return QueryLocation(
        country=empty_as_none(location.country),
        region=empty_as_none(location.region),
        city=empty_as_none(location.city),
        timezone=empty_as_none(location.timezone),
    )
