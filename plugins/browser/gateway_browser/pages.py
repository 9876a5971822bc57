"""The pages of one response: each has a cursor, by which the model scrolls, follows links and cites."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.protocols import CallRecord, Source
from gateway_browser.documents import Document


class Page(Struct, frozen=True, kw_only=True):
    """A page under its cursor."""

    cursor: int
    url: str
    """Empty for a list of results."""
    title: str
    links: Sequence[str]
    document: Document | None = None
    """None: it was shown by an earlier response, and has to be fetched again."""


class Pages:
    """Pages by their cursors; those that were not used for longest are let go of beyond a number."""

    def __init__(self, most: int, calls: Iterable[CallRecord] = ()) -> None:
        """`calls` are those of earlier responses: their cursors stay what they were."""
        self._most = most
        self._pages: OrderedDict[int, Page] = OrderedDict()
        self._next = 0
        self.latest: int | None = None
        found: dict[int, list[Source]] = {}
        for call in calls:
            for source in call.sources:
                found.setdefault(source.cursor, []).append(source)
        for cursor in sorted(found):
            self._keep(_restored(cursor, found[cursor]))

    def add(self, document: Document) -> Page:
        """A page that was opened now."""
        page = Page(
            cursor=self._next,
            url=document.url,
            title=document.title,
            links=document.links,
            document=document,
        )
        self._keep(page)
        return page

    def renew(self, page: Page, document: Document) -> Page:
        """A page of an earlier response, as it is now, under its cursor."""
        renewed = Page(
            cursor=page.cursor,
            url=page.url,
            title=document.title,
            links=document.links,
            document=document,
        )
        self._keep(renewed)
        return renewed

    def get(self, cursor: int) -> Page | None:
        """A page; -1 is the latest."""
        wanted = self.latest if cursor < 0 else cursor
        page = None if wanted is None else self._pages.get(wanted)
        if page is not None:
            self._pages.move_to_end(page.cursor)
        return page

    @property
    def cursors(self) -> Mapping[int, Page]:
        return self._pages

    def _keep(self, page: Page) -> None:
        self._pages[page.cursor] = page
        self._pages.move_to_end(page.cursor)
        self._next = max(self._next, page.cursor + 1)
        self.latest = page.cursor
        while len(self._pages) > self._most:
            self._pages.popitem(last=False)


def _restored(cursor: int, sources: Sequence[Source]) -> Page:
    whole = next((source for source in sources if source.lines is None), None)
    if whole is not None:
        return Page(cursor=cursor, url=whole.url, title=whole.title, links=())
    links = list(dict.fromkeys(source.url for source in sources))
    return Page(cursor=cursor, url="", title="Search results", links=links)
