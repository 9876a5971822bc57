"""Each search provider, and one of another distribution."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import (
    SearchDetails,
    SessionContext,
    ToolCall,
)
from gateway.wire.items import OpenPageAction, SearchAction
from gateway_browser import QueryLocation, SearchHit, SearchQuery
from gateway_browser.config import BrowserConfig
from gateway_browser.domains import read_domains
from gateway_browser.plugin import open_browser
from gateway_browser.providers.opening import open_provider

pytestmark = pytest.mark.anyio

QUERY = SearchQuery(
    text="high towers",
    count=3,
    domains=("a.test", "b.test"),
    location=QueryLocation(country="no", city="Oslo", timezone="Europe/Oslo"),
)


def config(**table: Any) -> BrowserConfig:
    return msgspec.convert(table, BrowserConfig)


async def found(table: dict[str, Any]) -> Sequence[SearchHit]:
    async with open_provider(config(**table)) as provider:
        return await provider.search(QUERY)


async def test_searxng_is_asked_for_json(site: Any) -> None:
    table = {"url": f"{site.url}/", "engines": ["duckduckgo"], "headers": {"X-Who": "me"}}
    hits = await found({"provider": "searxng", "searxng": table})
    assert hits[0] == SearchHit(
        url=f"{site.url}/tower", title="Tower facts", snippet="A 【tower】 of 312 m"
    )
    [query] = site.queries
    assert query["q"] == ["high towers (site:a.test OR site:b.test)"]
    assert (query["format"], query["engines"]) == (["json"], ["duckduckgo"])
    assert "safesearch" not in query, "as the instance has it"
    assert site.headers[-1]["x-who"] == "me"


async def test_results_without_a_url_are_left_out(site: Any) -> None:
    """SearXNG has some kinds of them, and any API may send null."""
    site.search = (
        b'{"results": [{"title": "k", "url": null}, {"content": "x"}, {"url": "https://a.test/"}]}'
    )
    table = {"url": site.url, "safesearch": 0}
    assert [hit.url for hit in await found({"provider": "searxng", "searxng": table})] == ["https://a.test/"]  # fmt: skip
    assert site.queries[-1]["safesearch"] == ["0"]
    exa = {"api_key": "k", "url": f"{site.url}/search"}
    assert [hit.url for hit in await found({"provider": "exa", "exa": exa})] == ["https://a.test/"]
    for answer in (b'{"web": null}', b'{"web": {"results": null}}', b'{"query": {}}'):
        site.search = answer
        assert list(await found({"provider": "brave", "brave": exa})) == []
    site.search = b'{"results": null}'
    assert list(await found({"provider": "exa", "exa": exa})) == []


async def test_brave_is_asked_by_its_api(site: Any) -> None:
    answer = {"web": {"results": [{"url": "https://a.test/", "title": "A", "description": "<strong>x</strong> &amp; y"}]}}  # fmt: skip
    site.search = json.dumps(answer).encode()
    table = {"api_key": "k", "url": f"{site.url}/search"}
    hits = await found({"provider": "brave", "brave": table})
    assert list(hits) == [SearchHit(url="https://a.test/", title="A", snippet="x & y")]
    [query] = site.queries
    assert (query["country"], query["count"]) == (["NO"], ["3"])
    assert (query["result_filter"], query["text_decorations"]) == (["web"], ["false"])
    assert query["q"] == ["high towers (site:a.test OR site:b.test)"]
    headers = site.headers[-1]
    assert headers["x-subscription-token"] == "k"
    assert (headers["x-loc-city"], headers["x-loc-timezone"]) == ("Oslo", "Europe/Oslo")
    assert headers["x-loc-country"] == "NO"


@pytest.mark.parametrize("words", [1, 200])
@pytest.mark.parametrize("domains", [0, 1, 3, 100])
async def test_braves_limits_are_kept_and_the_domains_with_them(
    site: Any, words: int, domains: int
) -> None:
    """400 characters and 50 words, and the countries that it knows: anything else is an error to it."""
    site.search = b"{}"
    names = tuple(f"host{n}.example.com" for n in range(domains))
    query = SearchQuery(
        text="word " * words, count=99, domains=names, location=QueryLocation(country="is")
    )
    table = {"api_key": "k", "url": f"{site.url}/search"}
    async with open_provider(config(provider="brave", brave=table)) as provider:
        await provider.search(query)
    [asked] = site.queries[-1]["q"]
    assert len(asked) <= 400
    assert len(asked.split()) <= 50
    assert asked.startswith("word")
    assert asked.count("(") == asked.count(")")
    sites = [word.strip("()") for word in asked.split() if "site:" in word]
    assert sites == [f"site:{name}" for name in names[: len(sites)]]
    assert len(sites) >= min(domains, 3)
    assert (site.queries[-1]["country"], site.queries[-1]["count"]) == (["ALL"], ["20"])
    assert site.headers[-1]["x-loc-country"] == "IS"


@pytest.mark.parametrize("blocked", [False, True])
async def test_a_domain_that_is_too_long_for_brave_is_left_out(site: Any, blocked: bool) -> None:
    site.search = b"{}"
    domains = tuple(map(str, read_domains(["a.test/" + "a" * 900], ())))
    query = SearchQuery(text="towers", count=3, **{"blocked_domains" if blocked else "domains": domains})  # fmt: skip
    table = {"api_key": "k", "url": f"{site.url}/search"}
    async with open_provider(config(provider="brave", brave=table)) as provider:
        await provider.search(query)
    assert site.queries[-1]["q"] == ["towers"]


@pytest.mark.parametrize("provider", ["brave", "searxng"])
async def test_a_path_with_spaces_is_one_operator(site: Any, provider: str) -> None:
    site.search = b"{}"
    [domain] = read_domains(["a.test/a%20b%20é"], ())
    query = SearchQuery(text="towers", count=3, blocked_domains=(str(domain),))
    table = {"url": f"{site.url}/search" if provider == "brave" else site.url}
    if provider == "brave":
        table["api_key"] = "k"
    async with open_provider(config(**{"provider": provider, provider: table})) as opened:
        await opened.search(query)
    assert site.queries[-1]["q"] == ["towers -site:a.test/a%20b%20%C3%A9"]


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_blocked_domains_are_told_to_the_engine(site: Any, count: int) -> None:
    """As far as its limits go: the session drops other results."""
    site.search = b"{}"
    names = tuple(f"host{n}.example.com" for n in range(count))
    query = SearchQuery(text="towers", count=3, blocked_domains=(*names, "a.test/x"))
    table = {"api_key": "k", "url": f"{site.url}/search"}
    async with open_provider(config(provider="brave", brave=table)) as provider:
        await provider.search(query)
    [asked] = site.queries[-1]["q"]
    assert len(asked) <= 400
    assert len(asked.split()) <= 50
    first, *sites = asked.split()
    assert first == "towers"
    assert sites[:count] == [f"-site:{name}" for name in names[: len(sites)]]
    assert len(sites) >= min(count, 3)
    async with open_provider(config(provider="exa", exa=table)) as provider:
        await provider.search(query)
    assert json.loads(site.bodies[-1])["excludeDomains"] == list(names)


async def test_exa_is_asked_by_its_api(site: Any) -> None:
    site.search = (
        b'{"results": [{"url": "https://a.test/", "title": null, "highlights": ["x\\n y", "z"]}]}'
    )
    hits = await found({"provider": "exa", "exa": {"api_key": "k", "url": f"{site.url}/search"}})
    assert list(hits) == [SearchHit(url="https://a.test/", title="", snippet="x y … z")]
    body = json.loads(site.bodies[-1])
    assert body["includeDomains"] == ["a.test", "b.test"]
    assert (body["numResults"], body["userLocation"]) == (3, "NO")
    assert body["contents"] == {"highlights": {"maxCharacters": 600}}
    assert site.headers[-1]["x-api-key"] == "k"


async def test_an_index_finds_and_holds_pages(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "tower.html").write_text("<title>Tower</title><p>A high tower.</p>")
    (tmp_path / "sub" / "a b.md").write_text("# Bridge\n\nNot high.\nIt has no towers.")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    table = {"provider": "local", "local": {"path": str(tmp_path), "base_url": "http://in.test/w"}}
    hits = await found(table)
    assert [hit.url for hit in hits] == [
        "http://in.test/w/tower.html",
        "http://in.test/w/sub/a%20b.md",
    ]
    async with open_browser(config(**table)) as server, server.session(SessionContext()) as session:
        searched = await session.call(ToolCall("web_search", {"query": 'tower" OR (* NEAR'}))
        assert "【0†Tower†in.test】" in searched.text
        opened = await session.call(ToolCall("open_page", {"id": 0}))
        assert "L0: A high tower." in opened.text
        page = OpenPageAction(url="http://in.test/w/tower.html")
        assert opened.details == SearchDetails(action=page)
        nothing = await session.call(ToolCall("web_search", {"query": "?!"}))
        assert "No results were found." in nothing.text


async def test_a_provider_of_another_distribution_is_named_by_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fixed:
        async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
            return [SearchHit(url=self.url, title=query.text)]

        def __init__(self, url: str) -> None:
            self.url = url

    @asynccontextmanager
    async def open_fixed(options: dict[str, Any]) -> AsyncIterator[Fixed]:
        yield Fixed(options["url"])

    module = ModuleType("fixed_search")
    module.open_fixed = open_fixed  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "fixed_search", module)
    table = {"provider": "fixed_search:open_fixed", "options": {"url": "https://a.test/"}}
    assert list(await found(table)) == [SearchHit(url="https://a.test/", title="high towers")]


async def test_a_provider_that_breaks_is_a_failed_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
            raise ZeroDivisionError

    @asynccontextmanager
    async def open_broken(options: dict[str, Any]) -> AsyncIterator[Broken]:
        yield Broken()

    module = ModuleType("broken_search")
    module.open_broken = open_broken  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "broken_search", module)
    broken = config(provider="broken_search:open_broken")
    async with open_browser(broken) as server, server.session(SessionContext()) as session:
        result = await session.call(ToolCall("web_search", {"query": "x"}))
    assert result.failed
    assert result.details == SearchDetails(action=SearchAction(query="x", queries=["x"]))


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"provider": "searxng"},
        {"provider": "google"},
        {"provider": "searxng", "searxng": {"url": "searx.example.com"}},
        {"provider": "local", "local": {"path": ".", "base_url": "file:///"}},
        {"provider": "a.b:c", "time_limit": 0},
        {"provider": "a.b:c", "timelimit": 1},
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        config(**table)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"provider": "no_such_module:open_it"}, "is its distribution installed"),
        ({"provider": "local", "local": {"path": "/no/such/folder"}}, "there is no folder"),
    ],
)
async def test_what_is_not_there_stops_the_start(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await found(table)


async def test_the_plugin_is_found() -> None:
    assert "browser" in {offer.name for offer in load_plugins().offers("tool")}
