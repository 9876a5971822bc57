"""The Brave Search API: https://api-dashboard.search.brave.com/api-reference/web/search/get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
from msgspec import Struct

from gateway_browser.config import BraveConfig
from gateway_browser.providers import SearchHit, SearchQuery
from gateway_browser.providers.http import (
    MAX_RESULTS,
    api_client,
    ask,
    snippet_text,
    with_site_operators,
)

_MAX_RESULTS = 20
_LONGEST = 400
"""Maximum characters of a query."""
_MAX_WORDS = 50
_MAX_DOMAINS = 12
"""Each domain counts as a word, and so does the `OR` between two: half of a query."""
_COUNTRIES = frozenset((
    "AR", "AT", "AU", "BE", "BR", "CA", "CH", "CL", "CN", "DE", "DK", "ES", "FI", "FR", "GB", "HK", "ID", "IN",
    "IT", "JP", "KR", "MX", "MY", "NL", "NO", "NZ", "PH", "PL", "PT", "RU", "SA", "SE", "TR", "TW", "US", "ZA",
))  # fmt: skip
"""Other countries are rejected by the API."""


class _Result(Struct):
    url: str | None = None
    title: str | None = None
    description: str | None = None


class _Web(Struct):
    results: list[_Result] | None = None


class _Answer(Struct):
    web: _Web | None = None


class Brave:
    """A `SearchProvider`."""

    def __init__(self, config: BraveConfig, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._url = config.url

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        parameters = {
            "q": _truncated(query.text, query.domains, query.blocked_domains),
            "count": str(min(query.count, _MAX_RESULTS)),
            "result_filter": "web",
            "text_decorations": "false",
        }
        country = (query.location.country or "").upper()
        if country:
            parameters["country"] = country if country in _COUNTRIES else "ALL"
        headers = {
            "X-Loc-Country": country,
            "X-Loc-City": query.location.city,
            "X-Loc-State-Name": query.location.region,
            "X-Loc-Timezone": query.location.timezone,
        }
        given = {
            name: value
            for name, value in headers.items()
            if value and value.isascii() and value.isprintable()
        }
        request = self._client.build_request("GET", self._url, params=parameters, headers=given)
        answer = await ask(self._client, request, _Answer)
        return [
            SearchHit(
                url=each.url, title=snippet_text(each.title), snippet=snippet_text(each.description)
            )
            for each in ((answer.web and answer.web.results) or [])[:MAX_RESULTS]
            if each.url
        ]


def _truncated(text: str, domains: tuple[str, ...], blocked: tuple[str, ...] = ()) -> str:
    """A query within the API's limits: excess words and domains are dropped."""
    operators = ""
    for number in range(min(len(domains or blocked), _MAX_DOMAINS), 0, -1):
        operators = with_site_operators("", domains[:number], blocked[:number])
        if len(operators) <= _LONGEST // 2:
            break
    else:
        operators = ""  # even one is too long; the results are filtered anyway
    words = text.split()[: _MAX_WORDS - len(operators.split())]
    return f"{' '.join(words)[: _LONGEST - len(operators)].rstrip()}{operators}"


@asynccontextmanager
async def open_brave(config: BraveConfig) -> AsyncIterator[Brave]:
    async with api_client({"X-Subscription-Token": config.api_key}) as client:
        yield Brave(config, client)
