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

from gateway_console.files import read_files

from .chromium import Chromium

PREFIX = "/team/llm"
BROWSER = {"accept": "text/html"}
PASSED = ("accept", "content-type", "authorization")


@contextmanager
def proxied(target: str) -> Iterator[tuple[str, list[str]]]:
    """The gateway's address below `PREFIX` of a proxy, and the paths outside of it that were asked for."""
    outside: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                outside.append(self.path)
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: self.headers[name] for name in PASSED if name in self.headers}
            url = target + self.path.removeprefix(PREFIX)
            with httpx.stream(self.command, url, headers=headers, content=body) as answer:
                self.send_response(answer.status_code)
                for name in ("content-type", "content-security-policy"):
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


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_what_the_page_names_is_beside_it(console: str, path: str) -> None:
    with proxied(console) as (url, outside):
        answer = httpx.get(url + path, headers=BROWSER)
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
        text = file.content.decode()
        assert not re.search(
            r"""(?:href|src)[=:]\s*["'`]/|url\(["']?/|from "/|import\("/""", text
        ), name
        assert ("fetch(" in text) == (name == "api.js"), name
        assert "location.origin" not in text, name
