"""The console behind a proxy that has the gateway below a path, which it strips."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from gateway_console.files import VENDOR, read_files

from .chromium import Chromium

PREFIX, OTHER = "/team/llm", "/team/other"
BROWSER = {"accept": "text/html"}
PASSED = ("accept", "content-type", "authorization")


@contextmanager
def proxied(target: str, *, also: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The gateway's address below `PREFIX` of a proxy, and the paths outside of it that were asked for. The gateway `also`
    is below `OTHER`."""
    outside: list[str] = []
    gateways = {PREFIX: target} if also is None else {PREFIX: target, OTHER: also}

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            prefix = next((each for each in gateways if self.path.startswith(f"{each}/")), None)
            if prefix is None:
                outside.append(self.path)
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: self.headers[name] for name in PASSED if name in self.headers}
            url = gateways[prefix] + self.path.removeprefix(prefix)
            with httpx.stream(self.command, url, headers=headers, content=body) as answer:
                self.send_response(answer.status_code)
                for name in ("content-type", "content-security-policy", "location"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                for chunk in answer.iter_bytes():
                    self.wfile.write(chunk)
                    self.wfile.flush()

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}", outside
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.browser
def test_it_works_below_a_path(chromium: Chromium, console: str) -> None:
    with proxied(console) as (url, outside), chromium.page() as page:
        page.open(f"{url}/")
        page.type("#prompt", "What is the capital of France?")
        page.press("Enter")
        page.wait("document.querySelector('.turn .stats')")
        assert "Paris" in page.text(".turn .answer")
        page.open(f"{url}/docs")
        page.wait("document.querySelector('.reference .group')")
        assert page.run("location.href") == f"{url}/#/api"
        assert page.run("document.querySelector('a[href$=\"openapi.json\"]').href") == (
            f"{url}/openapi.json"
        )
        assert page.messages == []
        assert [path for path in outside if path != "/favicon.ico"] == []


@pytest.mark.browser
def test_gateways_of_one_origin_share_nothing_that_is_stored(
    chromium: Chromium, console: str
) -> None:
    with proxied(console, also=console) as (url, _), chromium.page() as page:
        page.open(f"{url}/")
        page.run("sessionStorage.clear()")
        page.type("#prompt", "What is the capital of France?")
        page.press("Enter")
        page.wait("document.querySelector('.turn .stats')")
        page.wait("document.querySelector('.history li')")
        page.run("document.querySelector('button[aria-label=\"API key\"]').click()")
        page.type("dialog input[type=password]", "of-this-one")
        page.press("Enter")
        page.wait("!document.querySelector('dialog[open]')")
        page.open(f"{url.removesuffix(PREFIX)}{OTHER}/")
        page.wait("document.documentElement.dataset.ready")
        page.run("document.querySelector('button[aria-label=\"API key\"]').click()")
        assert page.run("document.querySelector('dialog input[type=password]').value") == ""
        assert page.run("document.querySelector('.history li')") is None
        page.open(f"{url}/")
        page.wait("document.querySelector('.history li')")
        page.run("document.querySelector('button[aria-label=\"API key\"]').click()")
        assert page.run("document.querySelector('dialog input[type=password]').value") == (
            "of-this-one"
        )


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/"])
def test_what_the_page_names_is_beside_it(console: str, path: str) -> None:
    with proxied(console) as (url, outside):
        answer = httpx.get(url + path, headers=BROWSER, follow_redirects=True)
        assert answer.status_code == 200
        named = re.findall(r'(?:href|src)="([^"#]+)"', answer.text)
        assert len(named) == 3
        for each in named:
            assert httpx.get(urljoin(str(answer.url), each)).status_code == 200, each
        described = httpx.get(f"{url}/openapi.json")
        server = urljoin(str(described.url), described.json()["servers"][0]["url"])
        assert server == f"{url}/"
        assert outside == []


def test_no_file_names_an_absolute_path() -> None:
    """Paths of the API go through `api.js`, which puts the gateway's address before them."""
    for name, file in read_files().items():
        if name.startswith(VENDOR):
            continue  # libraries of other projects: what they load, the browser tests see
        text = file.content.decode()
        assert not re.search(
            r"""(?:href|src)[=:]\s*["'`]/|url\(["']?/|from "/|import\("/""", text
        ), name
        assert ("fetch(" in text) == (name == "api.js"), name
        assert "location.origin" not in text, name
