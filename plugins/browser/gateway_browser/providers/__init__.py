"""Search providers: who finds pages. Each is chosen by the configuration; others can be added from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct


class ProviderFailure(Exception):
    """A search did not succeed. The message is for the model and the client: without URLs and keys."""


class Place(Struct, frozen=True, kw_only=True):
    """Where the user is, as far as the request says (`user_location`)."""

    country: str | None = None
    """Two letters."""
    region: str | None = None
    city: str | None = None
    timezone: str | None = None


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What to look for."""

    text: str
    count: int
    """How many results are wanted."""
    domains: tuple[str, ...] = ()
    """Only pages of these and their subdomains; empty: of all. Other results are dropped, whoever returns them."""
    place: Place = Place()


class SearchHit(Struct, frozen=True, kw_only=True):
    """A page that was found."""

    url: str
    title: str
    snippet: str = ""
    """Plain text."""


class SearchProvider(Protocol):
    """Finds pages."""

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """The best first. Raises `ProviderFailure`. May be called at once; cancelling stops it."""
        ...


class StoredPage(Struct, frozen=True, kw_only=True):
    """A page's content."""

    content: bytes
    content_type: str
    """As in HTTP: `text/html; charset=utf-8`."""


@runtime_checkable
class StoringProvider(Protocol):
    """A `SearchProvider` that has pages itself."""

    async def page(self, url: str) -> StoredPage | None:
        """The page at `url`; None: it has to be fetched."""
        ...


OpenProvider: TypeAlias = Callable[[Any], AbstractAsyncContextManager[SearchProvider]]
"""From the options of `[tools.browser.options]` to an open provider."""
