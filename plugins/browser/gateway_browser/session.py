"""The browsing session of one response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.sdk import CallRecord, SearchDetails, Source, ToolCall, ToolResult
from gateway.sdk.wire import (
    FindInPageAction,
    OpenPageAction,
    SearchAction,
    UrlSource,
    WebSearchAction,
)
from gateway_browser import views
from gateway_browser.arguments import (
    FIND,
    OPEN,
    SEARCH,
    FindArguments,
    OpenArguments,
    SearchArguments,
    read_arguments,
)
from gateway_browser.config import BrowserConfig
from gateway_browser.documents import PageText
from gateway_browser.domains import ANY_PAGE, DomainFilter
from gateway_browser.errors import PageFailure
from gateway_browser.fetching import PageFetcher, check_url
from gateway_browser.pages import OpenedPage, Pages
from gateway_browser.providers import (
    ProviderFailure,
    QueryLocation,
    SearchHit,
    SearchProvider,
    SearchQuery,
    StoringProvider,
)
from gateway_browser.reader import PageReader

logger = logging.getLogger("gateway.browser")

_MAX_RESULTS = 50
_LONGEST_QUERY = 2000


class BrowserSettings(Struct, frozen=True, kw_only=True):
    """Settings of a request's entry in `tools`."""

    owner: str = ""
    """Name of the API key."""
    domains: DomainFilter = ANY_PAGE
    location: QueryLocation = QueryLocation()
    size: Literal["low", "medium", "high"] = "medium"

    def scaled(self, number: int) -> int:
        """Scale a configured number by this `search_context_size`."""
        match self.size:
            case "low":
                return max(1, number // 2)
            case "high":
                return number * 2
            case _:
                return number


class BrowserSession:
    """Keeps the pages of one response; needs no closing."""

    def __init__(
        self,
        config: BrowserConfig,
        provider: SearchProvider,
        fetcher: PageFetcher,
        reader: PageReader,
        settings: BrowserSettings,
        calls: Mapping[str, CallRecord],
    ) -> None:
        """`calls` are the earlier calls of the conversation."""
        self._config = config
        self._provider = provider
        self._fetcher = fetcher
        self._reader = reader
        self._settings = settings
        self._pages = Pages(config.max_pages, calls.values())

    async def call(self, call: ToolCall) -> ToolResult:
        name, arguments = call.name, call.arguments
        try:
            match name:
                case SEARCH.name:
                    return await self._search(read_arguments(arguments, SearchArguments))
                case OPEN.name:
                    return await self._open(read_arguments(arguments, OpenArguments))
                case FIND.name:
                    return await self._find(read_arguments(arguments, FindArguments))
                case _:
                    return _failed(f"There is no tool named '{name}'.", _action(name, arguments))
        except msgspec.ValidationError as error:
            return _failed(f"Wrong arguments: {error}.", _action(name, arguments))

    async def _search(self, asked: SearchArguments) -> ToolResult:
        query = asked.query.strip()[:_LONGEST_QUERY]
        action = SearchAction(query=query, queries=[query])
        if not query:
            return _failed("Wrong arguments: the query is empty.", action)
        settings = self._settings
        count = int(asked.topn or 0)
        if count < 1:
            count = settings.scaled(self._config.results)
        count = min(count, _MAX_RESULTS)
        wanted = SearchQuery(
            text=query,
            count=count,
            domains=tuple(map(str, settings.domains.allowed)),
            blocked_domains=tuple(map(str, settings.domains.blocked)),
            location=settings.location,
        )
        try:
            found = await self._with_timeout(self._provider.search(wanted), "the search engine")
        except ProviderFailure as failure:
            return _failed(f"The search failed: {failure}. Try again, or answer without.", action)
        except Exception:
            # Providers may be third-party code: a failure is reported to the model, and the response continues.
            logger.warning("the search provider failed", exc_info=True)
            return _failed("The search failed: the search engine's answer cannot be read.", action)
        hits = _usable(found, settings.domains)[:count]
        document, sources = views.results_document(query, hits)
        page = self._pages.add(document)
        action = msgspec.structs.replace(action, sources=[UrlSource(url=hit.url) for hit in hits])
        return ToolResult(
            text=self._view(page.cursor, document, first=0, count=len(document.lines)),
            details=SearchDetails(action=action),
            sources=[msgspec.structs.replace(each, cursor=page.cursor) for each in sources],
        )

    async def _open(self, asked: OpenArguments) -> ToolResult:
        page = self._pages.get(int(asked.cursor))
        target = asked.id
        if isinstance(target, str) and target.strip().lstrip("-").isdigit():
            target = int(target)
        url: str | None = None
        try:
            if isinstance(target, str):
                url = target.strip()
                opened = await self._page(url)
            elif page is None:
                return _failed(self._no_page(int(asked.cursor)), OpenPageAction())
            elif target < 0:
                url = page.url or None
                opened = await self._loaded(page)
            else:
                page = await self._with_links(page)
                number = int(target)
                if number >= len(page.links):
                    return _failed(
                        f"The page [{page.cursor}] has no link {number}: it has {len(page.links)}.",
                        OpenPageAction(),
                    )
                url = page.links[number]
                opened = await self._page(url)
        except PageFailure as failure:
            return _failed(f"The page cannot be opened: {failure}.", OpenPageAction(url=url))
        assert opened.document is not None, "it is loaded"
        text = self._view(
            opened.cursor, opened.document, first=int(asked.loc), count=int(asked.num_lines)
        )
        details = SearchDetails(action=OpenPageAction(url=url))
        return ToolResult(text=text, details=details, sources=_line_sources(opened))

    async def _find(self, asked: FindArguments) -> ToolResult:
        page = self._pages.get(int(asked.cursor))
        action = FindInPageAction(pattern=asked.pattern, url=page.url if page is not None else "")
        if page is None:
            return _failed(self._no_page(int(asked.cursor)), action)
        if not asked.pattern.strip():
            return _failed("Wrong arguments: the pattern is empty.", action)
        pattern = asked.pattern[:_LONGEST_QUERY]
        try:
            page = await self._loaded(page)
            assert page.document is not None, "it is loaded"
            found = await self._reader.find(page.document, pattern, self._settings.owner)
        except PageFailure as failure:
            return _failed(f"The page cannot be opened again: {failure}.", action)
        text = views.matches(
            page.cursor, page.document, pattern, found, characters=self._characters
        )
        details = SearchDetails(action=action)
        return ToolResult(text=text, details=details, sources=_line_sources(page))

    # Pages.

    async def _page(self, url: str) -> OpenedPage:
        """The page at `url`, under a new cursor."""
        return self._pages.add(await self._document(url))

    async def _loaded(self, page: OpenedPage) -> OpenedPage:
        """`page` with its text. Pages of an earlier response are fetched again. Raises `PageFailure`."""
        if page.document is not None:
            return page
        if not page.url:
            raise PageFailure("the results of an earlier search are not kept; search again")
        return self._pages.renew(page, await self._document(page.url))

    async def _with_links(self, page: OpenedPage) -> OpenedPage:
        return page if page.links or page.document is not None else await self._loaded(page)

    async def _document(self, url: str) -> PageText:
        check_url(url, self._settings.domains)
        if isinstance(self._provider, StoringProvider):
            stored = await self._with_timeout(self._provider.page(url), "the page")
            if stored is not None:
                return await self._reader.document(
                    url, stored.content, stored.content_type, self._settings.owner
                )
        return await self._fetcher.fetch(url, self._settings.domains, key=self._settings.owner)

    async def _with_timeout(self, work: Awaitable[Any], what: str) -> Any:
        seconds = self._config.time_limit
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            problem = f"{what} did not answer within {seconds:g} seconds"
            raise (ProviderFailure if what != "the page" else PageFailure)(problem) from None

    @property
    def _characters(self) -> int:
        return self._settings.scaled(self._config.view_characters)

    def _view(self, cursor: int, document: PageText, *, first: int, count: int) -> str:
        return views.view(cursor, document, first=first, count=count, characters=self._characters)

    def _no_page(self, cursor: int) -> str:
        known = ", ".join(f"[{each}]" for each in sorted(self._pages.cursors))
        if cursor < 0 or not known:
            return "No page is open yet. Search, or open a page by its URL."
        return f"There is no page [{cursor}]. There are: {known}."


def _line_sources(page: OpenedPage) -> list[Source]:
    """The sources of a page's lines. Those of a result list were reported with the search."""
    if not page.url:
        return []
    return [Source(cursor=page.cursor, url=page.url, title=page.title)]


def _usable(hits: Any, domains: DomainFilter) -> list[SearchHit]:
    """Hits with a page URL in the requested domains, without duplicates."""
    usable: dict[str, SearchHit] = {}
    for hit in hits:
        try:
            parts = urlsplit(hit.url)
        except ValueError:
            continue
        if parts.scheme in ("http", "https") and parts.hostname and domains.allows(hit.url):
            usable.setdefault(hit.url, hit)
    return list(usable.values())


def _action(name: str, arguments: dict[str, Any]) -> WebSearchAction:
    """The action shown for a call whose arguments could not be decoded."""
    match name:
        case OPEN.name:
            return OpenPageAction()
        case FIND.name:
            pattern = arguments.get("pattern")
            return FindInPageAction(url="", pattern=pattern if isinstance(pattern, str) else "")
        case _:
            query = arguments.get("query")
            return SearchAction(query=query if isinstance(query, str) else "")


def _failed(text: str, action: WebSearchAction) -> ToolResult:
    return ToolResult(text=text, failed=True, details=SearchDetails(action=action))
