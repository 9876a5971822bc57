"""The pages of one response. Each has a cursor, by which the model scrolls, follows links and cites."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from gateway.sdk import CallRecord, Source
from gateway_browser.documents import PageText

MAX_CHARACTERS: Final = 16_000_000
"""Maximum number of characters of all pages of one response."""


class OpenedPage(Struct, frozen=True, kw_only=True):
    """A page and its cursor."""

    cursor: int
    url: str
    """Empty for a list of search results."""
    title: str
    links: Sequence[str]
    document: PageText | None = None
    """None if an earlier response showed the page; it must be fetched again."""

    @property
    def size(self) -> int:
        """Characters of its text and its links."""
        if self.document is None:
            return 0
        return sum(map(len, self.document.lines)) + sum(map(len, self.document.links))


class Pages:
    """Pages by cursor. Beyond a number of pages, or `MAX_CHARACTERS`, the least recently used are dropped."""

    def __init__(self, most: int, calls: Iterable[CallRecord] = ()) -> None:
        """`calls` are those of earlier responses; their cursors stay valid."""
        self._most = most
        self._pages: OrderedDict[int, OpenedPage] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._next = 0
        self.latest: int | None = None
        found: dict[int, list[Source]] = {}
        for call in calls:
            for source in call.sources:
                found.setdefault(source.cursor, []).append(source)
        for cursor in sorted(found):
            self._keep(_page_of_sources(cursor, found[cursor]))

    def add(self, document: PageText) -> OpenedPage:
        """Add a page that was just opened."""
        page = OpenedPage(
            cursor=self._next,
            url=document.url,
            title=document.title,
            links=document.links,
            document=document,
        )
        self._keep(page)
        return page

    def renew(self, page: OpenedPage, document: PageText) -> OpenedPage:
        """Replace the document of a page of an earlier response, under the same cursor."""
        renewed = OpenedPage(
            cursor=page.cursor,
            url=page.url,
            title=document.title,
            links=document.links,
            document=document,
        )
        self._keep(renewed)
        return renewed

    def get(self, cursor: int) -> OpenedPage | None:
        """The page at a cursor; -1 means the latest page."""
        wanted = self.latest if cursor < 0 else cursor
        page = None if wanted is None else self._pages.get(wanted)
        if page is not None:
            self._pages.move_to_end(page.cursor)
        return page

    @property
    def cursors(self) -> Mapping[int, OpenedPage]:
        return self._pages

    def _keep(self, page: OpenedPage) -> None:
        self._pages[page.cursor] = page
        self._pages.move_to_end(page.cursor)
        self._next = max(self._next, page.cursor + 1)
        self.latest = page.cursor
        self._sizes[page.cursor] = page.size
        while len(self._pages) > self._most or (
            len(self._pages) > 1 and sum(self._sizes.values()) > MAX_CHARACTERS
        ):
            gone, _ = self._pages.popitem(last=False)
            del self._sizes[gone]


def _page_of_sources(cursor: int, sources: Sequence[Source]) -> OpenedPage:
    whole = next((source for source in sources if source.lines is None), None)
    if whole is not None:
        return OpenedPage(cursor=cursor, url=whole.url, title=whole.title, links=())
    links = list(dict.fromkeys(source.url for source in sources))
    return OpenedPage(cursor=cursor, url="", title="Search results", links=links)
