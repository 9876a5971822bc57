"""SearXNG: https://docs.searxng.org/dev/search_api."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
from msgspec import Struct

from gateway_browser.config import SearxngConfig
from gateway_browser.providers import SearchHit, SearchQuery
from gateway_browser.providers.http import (
    MAX_RESULTS,
    api_client,
    ask,
    snippet_text,
    with_site_operators,
)

_HINTS = {
    403: "its settings must allow the format json",
    429: "its limiter takes the gateway for a robot",
}


class _Result(Struct):
    url: str | None = None
    """Not every kind of result has a URL."""
    title: str | None = None
    content: str | None = None


class _Answer(Struct):
    results: list[_Result] | None = None


class Searxng:
    """A `SearchProvider`."""

    def __init__(self, config: SearxngConfig, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._url = config.url.rstrip("/") + "/search"
        self._parameters = {
            "format": "json",
            "safesearch": "" if config.safesearch is None else str(config.safesearch),
            "engines": ",".join(config.engines),
            "categories": ",".join(config.categories),
            "language": config.language,
        }

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """SearXNG supports neither a number of results nor a location."""
        parameters = {
            "q": with_site_operators(query.text, query.domains, query.blocked_domains),
            **self._parameters,
        }
        given = {name: value for name, value in parameters.items() if value}
        request = self._client.build_request("GET", self._url, params=given)
        answer = await ask(self._client, request, _Answer, hints=_HINTS)
        return [
            SearchHit(
                url=each.url, title=snippet_text(each.title), snippet=snippet_text(each.content)
            )
            for each in (answer.results or [])[:MAX_RESULTS]
            if each.url
        ]


@asynccontextmanager
async def open_searxng(config: SearxngConfig) -> AsyncIterator[Searxng]:
    async with api_client(config.headers) as client:
        yield Searxng(config, client)
