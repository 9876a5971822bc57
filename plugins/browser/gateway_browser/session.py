"""One response's browsing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.protocols import CallRecord, Source, ToolResult
from gateway_browser import views
from gateway_browser.arguments import FIND, OPEN, SEARCH, Find, Open, Search, read_arguments
from gateway_browser.config import BrowserConfig
from gateway_browser.documents import Document, document_of
from gateway_browser.fetching import Fetcher, PageFailure, check_url, in_domains
from gateway_browser.pages import Page, Pages
from gateway_browser.providers import (
    Place,
    ProviderFailure,
    SearchHit,
    SearchProvider,
    SearchQuery,
    StoringProvider,
)

logger = logging.getLogger("gateway.browser")

_MOST_RESULTS = 50
_LONGEST_QUERY = 2000


class Wishes(Struct, frozen=True, kw_only=True):
    """What a request's entry of `tools` says."""

    domains: tuple[str, ...] = ()
    place: Place = Place()
    size: Literal["low", "medium", "high"] = "medium"

    def scaled(self, number: int) -> int:
        """A number of the configuration, for this `search_context_size`."""
        match self.size:
            case "low":
                return max(1, number // 2)
            case "high":
                return number * 2
            case _:
                return number


class BrowserSession:
    """A `ToolSession`. Keeps the pages of one response; nothing has to be closed."""

    def __init__(
        self,
        config: BrowserConfig,
        provider: SearchProvider,
        fetcher: Fetcher,
        wishes: Wishes,
        calls: Mapping[str, CallRecord],
    ) -> None:
        """`calls` are those of earlier responses of the conversation."""
        self._config = config
        self._provider = provider
        self._fetcher = fetcher
        self._wishes = wishes
        self._pages = Pages(config.max_pages, calls.values())

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        try:
            match name:
                case SEARCH.name:
                    return await self._search(read_arguments(arguments, Search))
                case OPEN.name:
                    return await self._open(read_arguments(arguments, Open))
                case FIND.name:
                    return await self._find(read_arguments(arguments, Find))
                case _:
                    return _failed(f"There is no tool named '{name}'.", _action(name, arguments))
        except msgspec.ValidationError as error:
            return _failed(f"Wrong arguments: {error}.", _action(name, arguments))

    async def _search(self, asked: Search) -> ToolResult:
        query = asked.query.strip()[:_LONGEST_QUERY]
        action: dict[str, Any] = {"type": "search", "query": query, "queries": [query]}
        if not query:
            return _failed("Wrong arguments: the query is empty.", action)
        wishes = self._wishes
        count = int(asked.topn or 0)
        if count < 1:
            count = wishes.scaled(self._config.results)
        count = min(count, _MOST_RESULTS)
        wanted = SearchQuery(text=query, count=count, domains=wishes.domains, place=wishes.place)
        try:
            found = await self._within(self._provider.search(wanted), "the search engine")
        except ProviderFailure as failure:
            return _failed(f"The search failed: {failure}. Try again, or answer without.", action)
        except Exception:
            # A provider is somebody's code: its failure is told to the model and ends nothing.
            logger.warning("the search provider failed", exc_info=True)
            return _failed("The search failed: the search engine's answer cannot be read.", action)
        hits = _usable(found, wishes.domains)[:count]
        document, sources = views.results_document(query, hits)
        page = self._pages.add(document)
        action["sources"] = [{"type": "url", "url": hit.url} for hit in hits]
        return ToolResult(
            text=self._view(page.cursor, document, first=0, count=len(document.lines)),
            details={"action": action},
            sources=[msgspec.structs.replace(each, cursor=page.cursor) for each in sources],
        )

    async def _open(self, asked: Open) -> ToolResult:
        page = self._pages.get(int(asked.cursor))
        target = asked.id
        if isinstance(target, str) and target.strip().lstrip("-").isdigit():
            target = int(target)
        action: dict[str, Any] = {"type": "open_page"}
        try:
            if isinstance(target, str):
                action["url"] = target.strip()
                opened = await self._page(target.strip())
            elif page is None:
                return _failed(self._no_page(int(asked.cursor)), action)
            elif target < 0:
                action["url"] = page.url or None
                opened = await self._loaded(page)
            else:
                page = await self._with_links(page)
                number = int(target)
                if number >= len(page.links):
                    return _failed(
                        f"The page [{page.cursor}] has no link {number}: it has {len(page.links)}.",
                        action,
                    )
                action["url"] = page.links[number]
                opened = await self._page(page.links[number])
        except PageFailure as failure:
            return _failed(f"The page cannot be opened: {failure}.", action)
        assert opened.document is not None, "it is loaded"
        text = self._view(
            opened.cursor, opened.document, first=int(asked.loc), count=int(asked.num_lines)
        )
        return ToolResult(text=text, details={"action": action}, sources=_cited(opened))

    async def _find(self, asked: Find) -> ToolResult:
        page = self._pages.get(int(asked.cursor))
        action = {
            "type": "find_in_page",
            "pattern": asked.pattern,
            "url": page.url if page is not None else "",
        }
        if page is None:
            return _failed(self._no_page(int(asked.cursor)), action)
        if not asked.pattern.strip():
            return _failed("Wrong arguments: the pattern is empty.", action)
        try:
            page = await self._loaded(page)
        except PageFailure as failure:
            return _failed(f"The page cannot be opened again: {failure}.", action)
        assert page.document is not None, "it is loaded"
        text = views.matches(page.cursor, page.document, asked.pattern, characters=self._characters)
        return ToolResult(text=text, details={"action": action}, sources=_cited(page))

    # Pages.

    async def _page(self, url: str) -> Page:
        """The page at `url`, under a cursor of its own."""
        return self._pages.add(await self._document(url))

    async def _loaded(self, page: Page) -> Page:
        """`page` with its text: one of an earlier response is fetched again. Raises `PageFailure`."""
        if page.document is not None:
            return page
        if not page.url:
            raise PageFailure("the results of an earlier search are not kept; search again")
        return self._pages.renew(page, await self._document(page.url))

    async def _with_links(self, page: Page) -> Page:
        return page if page.links or page.document is not None else await self._loaded(page)

    async def _document(self, url: str) -> Document:
        check_url(url, self._wishes.domains)
        if isinstance(self._provider, StoringProvider):
            stored = await self._within(self._provider.page(url), "the page")
            if stored is not None:
                return await asyncio.to_thread(
                    document_of, url, stored.content, stored.content_type
                )
        return await self._fetcher.fetch(url, self._wishes.domains)

    async def _within(self, work: Awaitable[Any], what: str) -> Any:
        seconds = self._config.time_limit
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            told = f"{what} did not answer within {seconds:g} seconds"
            raise (ProviderFailure if what != "the page" else PageFailure)(told) from None

    @property
    def _characters(self) -> int:
        return self._wishes.scaled(self._config.view_characters)

    def _view(self, cursor: int, document: Document, *, first: int, count: int) -> str:
        return views.view(cursor, document, first=first, count=count, characters=self._characters)

    def _no_page(self, cursor: int) -> str:
        known = ", ".join(f"[{each}]" for each in sorted(self._pages.cursors))
        if cursor < 0 or not known:
            return "No page is open yet. Search, or open a page by its URL."
        return f"There is no page [{cursor}]. There are: {known}."


def _cited(page: Page) -> list[Source]:
    """What the lines of a page are of; those of a list of results have been told with it."""
    if not page.url:
        return []
    return [Source(cursor=page.cursor, url=page.url, title=page.title)]


def _usable(hits: Any, domains: tuple[str, ...]) -> list[SearchHit]:
    """Hits with the URL of a page, of the domains that are asked for, each once."""
    usable: dict[str, SearchHit] = {}
    for hit in hits:
        try:
            parts = urlsplit(hit.url)
        except ValueError:
            continue
        if parts.scheme in ("http", "https") and in_domains(parts.hostname or "", domains):
            usable.setdefault(hit.url, hit)
    return list(usable.values())


def _action(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a call that could not be read is shown as."""
    match name:
        case OPEN.name:
            return {"type": "open_page"}
        case FIND.name:
            pattern = arguments.get("pattern")
            return {
                "type": "find_in_page",
                "url": "",
                "pattern": pattern if isinstance(pattern, str) else "",
            }
        case _:
            query = arguments.get("query")
            return {"type": "search", "query": query if isinstance(query, str) else ""}


def _failed(text: str, action: dict[str, Any]) -> ToolResult:
    return ToolResult(text=text, failed=True, details={"action": action})
