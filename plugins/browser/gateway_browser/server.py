"""The browser as a tool server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec import UNSET

from gateway.errors import InvalidRequest
from gateway.protocols import CallRecord, ServedTool, ToolSession
from gateway.wire.tools import Tool, UserLocation, WebSearchTool
from gateway_browser.arguments import FIND, OPEN, SEARCH, built_in
from gateway_browser.config import BrowserConfig
from gateway_browser.fetching import Fetcher
from gateway_browser.providers import Place, SearchProvider
from gateway_browser.session import BrowserSession, Wishes

_MOST_DOMAINS = 100
"""OpenAI's limit."""


class BrowserServer:
    """A `ToolServer`, which requests fit to themselves by what their `web_search` entry says."""

    label = "browser"

    def __init__(
        self,
        config: BrowserConfig,
        provider: SearchProvider,
        fetcher: Fetcher,
        wishes: Wishes = Wishes(),  # noqa: B008 (it is immutable)
    ) -> None:
        self._config = config
        self._provider = provider
        self._fetcher = fetcher
        self._wishes = wishes

    async def tools(self) -> Sequence[ServedTool]:
        return [
            ServedTool(
                definition=tool,
                builtin=built_in(name, tool),
                # The session's own limit comes first, and says more.
                time_limit=self._config.time_limit * 2 + 5,
                output_limit=self._config.output_limit,
                request_type="web_search",
                item_type="web_search_call",
            )
            for name, tool in (("search", SEARCH), ("open", OPEN), ("find", FIND))
        ]

    def for_entry(self, tool: Tool, *, owner: str | None) -> BrowserServer:
        assert isinstance(tool, WebSearchTool), "the request type is web_search"
        return BrowserServer(self._config, self._provider, self._fetcher, wishes_of(tool))

    def session(self, response_id: str) -> AbstractAsyncContextManager[ToolSession]:
        return self.session_after(response_id, {})

    def session_after(
        self, response_id: str, calls: Mapping[str, CallRecord]
    ) -> AbstractAsyncContextManager[ToolSession]:
        return self._session(calls)

    @asynccontextmanager
    async def _session(self, calls: Mapping[str, CallRecord]) -> AsyncIterator[ToolSession]:
        yield BrowserSession(self._config, self._provider, self._fetcher, self._wishes, calls)


def wishes_of(tool: WebSearchTool) -> Wishes:
    """What an entry of `tools` says. Raises `InvalidRequest`, with a `param` relative to it."""
    # Codex asks for text and images of models that see both; what is found as text answers that.
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
                param="filters.allowed_domains",
                code="array_above_max_length",
            )
        for index, domain in enumerate(given):
            clean = domain.strip().lower().rstrip(".")
            if not clean or any(each in clean for each in "/:@*? "):
                raise InvalidRequest(
                    f"{domain!r} is not a domain. Write it as 'example.com', without scheme and path.",
                    param=f"filters.allowed_domains[{index}]",
                    code="invalid_value",
                )
            domains.append(clean)
    location = tool.user_location
    size = tool.search_context_size
    return Wishes(
        domains=tuple(domains),
        place=Place() if location is UNSET else _place(location),
        size="medium" if size is UNSET else size,
    )


def _place(location: UserLocation) -> Place:
    def told(value: Any) -> str | None:
        return value if isinstance(value, str) and value else None

    return Place(
        country=told(location.country),
        region=told(location.region),
        city=told(location.city),
        timezone=told(location.timezone),
    )
