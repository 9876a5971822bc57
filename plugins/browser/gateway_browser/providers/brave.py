"""The Brave Search API: https://api-dashboard.search.brave.com/api-reference/web/search/get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
from msgspec import Struct, field

from gateway_browser.config import BraveConfig
from gateway_browser.providers import SearchHit, SearchQuery
from gateway_browser.providers.http import api_client, ask, plain, restricted

_MOST = 20
_LONGEST = 400


class _Result(Struct):
    url: str
    title: str | None = None
    description: str | None = None


class _Web(Struct):
    results: list[_Result] = []


class _Answer(Struct):
    web: _Web = field(default_factory=_Web)


class Brave:
    """A `SearchProvider`."""

    def __init__(self, config: BraveConfig, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._url = config.url

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        parameters = {
            "q": restricted(query.text, query.domains)[:_LONGEST],
            "count": str(min(query.count, _MOST)),
        }
        if query.place.country:
            parameters["country"] = query.place.country.upper()
        headers = {
            "X-Loc-City": query.place.city,
            "X-Loc-State-Name": query.place.region,
            "X-Loc-Timezone": query.place.timezone,
        }
        given = {name: value for name, value in headers.items() if value and value.isascii()}
        request = self._client.build_request("GET", self._url, params=parameters, headers=given)
        answer = await ask(self._client, request, _Answer)
        return [
            SearchHit(url=each.url, title=plain(each.title), snippet=plain(each.description))
            for each in answer.web.results
        ]


@asynccontextmanager
async def open_brave(config: BraveConfig) -> AsyncIterator[Brave]:
    async with api_client({"X-Subscription-Token": config.api_key}) as client:
        yield Brave(config, client)
