"""Requests to the API of a search engine."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2
import msgspec

from gateway.sdk.http import TooLarge, http_client
from gateway_browser.providers import ProviderFailure

T = TypeVar("T")

_MAX_BYTES = 4_194_304
MAX_RESULTS = 100
"""Maximum number of results that are read; the rest is ignored."""
_LONGEST_TEXT = 4000
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


@asynccontextmanager
async def api_client(headers: Mapping[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for one API. The session limits the time of a whole search."""
    async with http_client(
        max_bytes=_MAX_BYTES, headers={"accept": "application/json", **headers}
    ) as client:
        yield client


async def ask(
    client: httpx2.AsyncClient,
    request: httpx2.Request,
    answer: type[T],
    *,
    hints: Mapping[int, str] = {},
) -> T:
    """The decoded answer of the API. Raises `ProviderFailure` on any error; `hints` explain likely causes of a status
    code."""
    try:
        response = await client.send(request)
    except (httpx2.HTTPError, TooLarge) as error:
        raise ProviderFailure(
            f"the search engine cannot be reached ({type(error).__name__})"
        ) from None
    if response.status_code != 200:
        hint = hints.get(response.status_code)
        raise ProviderFailure(
            f"the search engine answered with HTTP status {response.status_code}"
            + (f": {hint}" if hint else "")
        )
    try:
        return msgspec.json.decode(response.content, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProviderFailure("the search engine's answer cannot be read") from None


def snippet_text(text: str | None) -> str:
    """A snippet without markup, on one line."""
    return " ".join(html.unescape(_TAG.sub("", (text or "")[:_LONGEST_TEXT])).split())


def with_site_operators(text: str, domains: tuple[str, ...], blocked: tuple[str, ...] = ()) -> str:
    """A query with `site:` operators for domains, which most engines support. `blocked` ones are named if `domains` is
    empty."""
    if not domains:
        return " ".join((text, *(f"-site:{domain}" for domain in blocked)))
    sites = " OR ".join(f"site:{domain}" for domain in domains)
    return f"{text} ({sites})" if len(domains) > 1 else f"{text} {sites}"
