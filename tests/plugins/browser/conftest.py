"""A web site, a search engine that speaks as SearXNG does, and gateways whose models browse."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway_testing.server import RunningGateway, run_gateway

TOWER = """<html><head><title>Tower facts</title></head><body>
<h1>The tower</h1><p>The tower was opened in 1931.</p><p>It is of iron.</p><p>It is 312 metres high.</p>
<p>See <a href="/bridge">the bridge</a> and <a href="https://other.example/x">elsewhere</a>.</p></body></html>"""
BRIDGE = "<title>Bridge facts</title><p>The bridge is 99 metres long.</p>"


class Site:
    """An HTTP server: pages by path, and `/search`, which finds what `hits` says."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.queries: list[dict[str, list[str]]] = []
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.search: Any = None
        """In place of hits: raw bytes, a status, or "hang"."""
        self.released = Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                site.headers.append({k.lower(): v for k, v in self.headers.items()})
                status, headers, body = site.answer(self.path)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                site.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.do_GET()

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # a client that does not wait for the answer

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.hits = [
            {"url": f"{self.url}/tower", "title": "Tower <b>facts</b>", "content": "A 【tower】 of 312 m"},
            {"url": f"{self.url}/bridge", "title": "Bridge facts", "content": None},
            {"url": "https://elsewhere.example/a", "title": "Elsewhere", "content": "Not here."},
            {"url": "javascript:alert(1)", "title": "Bad"},
        ]  # fmt: skip
        self.page("/tower", TOWER)
        self.page("/bridge", BRIDGE)

    def page(
        self,
        path: str,
        body: str | bytes,
        kind: str = "text/html",
        status: int = 200,
        **headers: str,
    ) -> None:
        """Have `path` answered so from now on."""
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (status, {"content-type": kind, **headers}, data)

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        if parts.path == "/search":
            self.queries.append(parse_qs(parts.query))
            match self.search:
                case "hang":
                    self.released.wait(300)
                case int(status):
                    return status, {}, b"{}"
                case bytes(raw):
                    return 200, {}, raw
            return 200, {}, json.dumps({"results": self.hits}).encode()
        if parts.path == "/hang":
            self.released.wait(300)
        if parts.path.startswith("/slow"):
            time.sleep(0.3)
        return self.pages.get(parts.path, (404, {}, b"nothing"))

    @contextmanager
    def running(self) -> Iterator[Site]:
        thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that a test may change."""
    with Site().running() as site:
        yield site


NAMES = {
    "harmony": {"S": "browser.search", "O": "browser.open", "F": "browser.find"},
    "qwen3": {"S": "web_search", "O": "open_page", "F": "find_in_page"},
}
FAMILIES = tuple(NAMES)


def rules(family: str, url: str) -> list[dict[str, Any]]:
    """What a model of `family` does: search, open, find and answer, or what the user's words say."""
    names = NAMES[family]

    def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return {"call": {"name": names[tool], "arguments": arguments}}

    return [
        {"when": "how high is the tower", "pieces": [{"reasoning": "I look."}, call("S", query="tower height")]},
        {"when": "Search results for: tower height", "pieces": [call("O", id=0)]},
        {"when": "opened in 1931", "pieces": [call("F", pattern="METRES high")]},
        {"when": "matches for 'METRES high'", "pieces": [{"text": "It is 312 metres high【1†L3】, they say【0†L1】【9†L1】."}], "chunk": 3},
        {"when": "cite it again", "pieces": [{"text": "As said【1†L3-L4】."}]},
        {"when": "go on from there", "pieces": [call("O", cursor=1, id=0)]},
        {"when": "99 metres long", "pieces": [{"text": "The bridge has 99【2†L0】."}]},
        {"when": "only search", "pieces": [call("S", query="towers", topn=2)]},
        {"when": "Search results for: towers", "pieces": [{"text": "Found【0†L0】."}]},
        {"when": "no results", "pieces": [call("S", query="nothing at all")]},
        {"when": "two at once", "pieces": [call("S", query="towers"), call("O", id=f"{url}/bridge")]},
        {"when": "wrong arguments", "pieces": [call("S", topn="many")]},
        {"when": "wrong link", "pieces": [call("S", query="towers of"), ]},
        {"when": "Search results for: towers of", "pieces": [call("O", id=77)]},
        {"when": "nothing open", "pieces": [call("F", pattern="x")]},
        {"when": "The search failed", "pieces": [{"text": "No search."}]},
        {"when": "The page cannot be opened", "pieces": [{"text": "No page."}]},
        {"when": "Wrong arguments", "pieces": [{"text": "My mistake."}]},
        {"when": "has no link 77", "pieces": [{"text": "No link."}]},
        {"when": "No page is open yet", "pieces": [{"text": "No page yet."}]},
        {"when": "No results were found", "pieces": [{"text": "Nothing."}]},
        *(
            {"when": f"open {path}!", "pieces": [call("O", id=f"{url}{path}")]}
            for path in (
                "/hang", "/big", "/broken", "/to-private", "/loop", "/missing", "/image", "/packed", "/slow", "/redirected",
            )
        ),
        {"when": "open metadata!", "pieces": [call("O", id="http://169.254.169.254/latest")]},
        {"when": "open elsewhere!", "pieces": [call("O", id="https://elsewhere.example/a")]},
        {"when": "open file!", "pieces": [call("O", id="file:///etc/passwd")]},
        {"when": "a page worth seeing", "pieces": [{"text": "Seen."}]},
    ]  # fmt: skip


def configuration(url: str, **browser: Any) -> dict[str, Any]:
    """A gateway with both families; `browser` are keys of `[tools.browser]`."""
    table = {"provider": "searxng", "searxng": {"url": url}, "allow_private": True, **browser}
    return {
        "models": {
            family: {
                "engine": "scripted",
                "parser": family,
                "renderer": "harmony" if family == "harmony" else "chat_template",
                "scripted": {"rules": rules(family, url)},
            }
            for family in FAMILIES
        },
        "tools": {"browser": table},
    }


@pytest.fixture
def browsing_configuration() -> Callable[..., dict[str, Any]]:
    return configuration


@pytest.fixture
def browse(site: Site, gateway_server: Any) -> Callable[..., RunningGateway]:
    """Start a gateway: `browse(time_limit=1)`."""
    return lambda **browser: gateway_server(configuration(site.url, **browser))


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    with Site().running() as site:
        yield site


@pytest.fixture(scope="module")
def browsing(
    shared_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway for tests that change nothing."""
    folder = tmp_path_factory.mktemp("browser")
    with run_gateway(configuration(shared_site.url), folder) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def hasty(shared_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that waits for a second at most; the site is the one of the whole file."""
    folder = tmp_path_factory.mktemp("hasty")
    with run_gateway(configuration(shared_site.url, time_limit=1), folder) as gateway:
        yield gateway


@pytest.fixture
def web(shared_site: Site) -> Iterator[Site]:
    """The site, whose search engine works again after the test."""
    hits = shared_site.hits
    yield shared_site
    shared_site.search, shared_site.hits = None, hits
