"""The Exa API: https://exa.ai/docs/reference/search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from msgspec import Struct

from gateway_browser.config import ExaConfig
from gateway_browser.providers import SearchHit, SearchQuery
from gateway_browser.providers.http import MAX_RESULTS, api_client, ask, snippet_text

_MAX_RESULTS = 100
_SNIPPET = 600
"""Characters of excerpts per page."""


class _Result(Struct):
    url: str | None = None
    title: str | None = None
    highlights: list[str] | None = None


class _Answer(Struct):
    results: list[_Result] | None = None


class Exa:
    """A `SearchProvider`."""

    def __init__(self, config: ExaConfig, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._url = config.url

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        body: dict[str, Any] = {
            "query": query.text,
            "numResults": min(query.count, _MAX_RESULTS),
            "contents": {"highlights": {"maxCharacters": _SNIPPET}},
        }
        if query.domains:
            body["includeDomains"] = [each.partition("/")[0] for each in query.domains]
        elif blocked := [each for each in query.blocked_domains if "/" not in each]:
            body["excludeDomains"] = blocked
        if query.location.country:
            body["userLocation"] = query.location.country.upper()
        request = self._client.build_request("POST", self._url, json=body)
        answer = await ask(self._client, request, _Answer)
        return [
            SearchHit(
                url=each.url,
                title=snippet_text(each.title),
                snippet=snippet_text(" … ".join(each.highlights or ()))[:_SNIPPET],
            )
            for each in (answer.results or [])[:MAX_RESULTS]
            if each.url
        ]


@asynccontextmanager
async def open_exa(config: ExaConfig) -> AsyncIterator[Exa]:
    async with api_client({"x-api-key": config.api_key}) as client:
        yield Exa(config, client)
