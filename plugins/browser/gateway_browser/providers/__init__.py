"""Search providers. The configuration selects one; other distributions can add more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct


class ProviderFailure(Exception):
    """A search failed. The message is shown to the model and the client, so it contains no URLs and keys."""


class QueryLocation(Struct, frozen=True, kw_only=True):
    """The user's location, as far as the request gives it (`user_location`)."""

    country: str | None = None
    """Two-letter country code."""
    region: str | None = None
    city: str | None = None
    timezone: str | None = None


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A search query."""

    text: str
    count: int
    """Number of results wanted."""
    domains: tuple[str, ...] = ()
    """Restricts results to pages of these domains and their subdomains, each in ASCII (`xn--…`) and possibly with a
    percent-encoded path; empty: unrestricted. The gateway drops other results."""
    blocked_domains: tuple[str, ...] = ()
    """Domains without results, in the same form. The gateway drops their results."""
    location: QueryLocation = QueryLocation()


class SearchHit(Struct, frozen=True, kw_only=True):
    """A search result."""

    url: str
    title: str
    snippet: str = ""
    """Plain text."""


class SearchProvider(Protocol):
    """Finds pages."""

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """The results, best first. Raises `ProviderFailure`. May be called concurrently; cancelling stops the search."""
        ...


class StoredPage(Struct, frozen=True, kw_only=True):
    """A page's content."""

    content: bytes
    content_type: str
    """As in HTTP, such as `text/html; charset=utf-8`."""


@runtime_checkable
class StoringProvider(Protocol):
    """A `SearchProvider` that stores pages itself."""

    async def page(self, url: str) -> StoredPage | None:
        """The page at `url`, or None if it has to be fetched."""
        ...


OpenProvider: TypeAlias = Callable[[Any], AbstractAsyncContextManager[SearchProvider]]
"""Creates a provider from the options of `[tools.browser.options]`."""
