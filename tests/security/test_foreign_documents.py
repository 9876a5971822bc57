"""Pages and files that are made to be expensive: they are read, or fail, within limits, and hold up nobody."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx
import pytest

from gateway.media.documents.reader import ReadingFailure
from gateway_browser.config import BrowserConfig, LocalConfig
from gateway_browser.documents import MAX_LINES, PageText, document_of
from gateway_browser.encodings import CODECS, codec_of
from gateway_browser.errors import PageFailure
from gateway_browser.pages import MAX_CHARACTERS, Pages
from gateway_browser.reader import PageReader
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.extraction import chunks_of, new_reader
from gateway_file_search.objects import StaticSizes
from tests.pdf_files import CATALOGUE, pdf_of, stream

LONGEST_SILENCE = 15.0
"""Seconds for which the event loop may be held up; on a quiet machine it is hundredths."""
READING_SECONDS = 3.0
"""For what may take longer than that. What has to be read gets time enough for a machine under load."""
LONG = 120.0
T = TypeVar("T")


@asynccontextmanager
async def beating_heart() -> AsyncIterator[None]:
    """Fails where the event loop was held up."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()

    heart = asyncio.create_task(beat())
    try:
        yield
    finally:
        heart.cancel()
    assert longest < LONGEST_SILENCE, f"the event loop stood still for {longest:.1f} s"


def run(body: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        async with beating_heart():
            return await body()

    return asyncio.run(within())


def browser_config(**keys: Any) -> BrowserConfig:
    return BrowserConfig(provider="local", local=LocalConfig(path="."), **keys)


def read_page(content: bytes, kind: str = "text/html", **keys: Any) -> PageText | str:
    """The page, or what its failure says."""

    async def body() -> PageText | str:
        reader = PageReader(browser_config(**{"reading_time": LONG, **keys}))
        try:
            return await reader.document("http://a.test/", content, kind, "")
        except PageFailure as failure:
            return str(failure)
        finally:
            await reader.close()

    return run(body)


SIZE = 2_097_152
PAGES: dict[str, bytes] = {
    "nested elements": b"<div>" * (SIZE // 5),
    "nested elements that end": b"<div>" * 200_000 + b"</div>" * 150_000,
    "nested formatting": b"<b><i><a href=x><p>" * (SIZE // 19),
    "nested tables": b"<table><tr><td>" * (SIZE // 15),
    "cells": b"<table><tr>" + b"<td>x" * (SIZE // 5),
    "links": b"".join(b"<a href=%d>x</a>" % number for number in range(SIZE // 20)),
    "links to a long base": b"<base href='http://a.test/%s/'>" % (b"x" * 1_000_000)
    + b"".join(b"<a href=%d>x</a>" % number for number in range(50_000)),
    "links that go up": b"".join(
        b"<a href='%s%d'>x</a>" % (b"../" * 1000, number) for number in range(600)
    ),
    "attributes": b"<p " + b"".join(b"a%d=1 " % number for number in range(250_000)) + b">",
    "one attribute": b"<p title='" + b"x" * SIZE,
    "entities": b"&lt;" * (SIZE // 4),
    "references": b"&" * SIZE,
    "character references": b"&#1114111;" * (SIZE // 10),
    "angle brackets": b"<" * SIZE,
    "comments": b"<!--" * (SIZE // 4),
    "declarations": b"<!DOCTYPE " * (SIZE // 10),
    "a document type with entities": b"<!DOCTYPE html [<!ENTITY a 'aaaaaaaaaa'>"
    + b"".join(
        b"<!ENTITY %s '%s'>" % (bytes([98 + level]), b"&%s;" % bytes([97 + level]) * 10)
        for level in range(12)
    )
    + b"]><p>&m;",
    "one line": b"x" * SIZE,
    "one line of words": b"x " * (SIZE // 2),
    "titles": b"<title>" * (SIZE // 7),
    "one title": b"<title>" + b"x" * SIZE,
    "line breaks": b"<pre>" + b"\n" * SIZE,
    "tabs": b"<pre>" + b"\t" * SIZE,
    "scripts": b"<script>" * (SIZE // 8),
    "select": b"<select><option>" * (SIZE // 16),
    "forms": b"<form><input>" * (SIZE // 13),
    "null bytes": b"\x00" * SIZE,
}  # fmt: skip


@pytest.mark.parametrize("what", PAGES)
def test_a_page_is_read_or_fails_within_limits(what: str) -> None:
    found = read_page(PAGES[what], reading_time=READING_SECONDS)
    if isinstance(found, PageText):
        assert len(found.lines) <= MAX_LINES + 1
        assert len(found.title) <= 500
        assert len(found.links) <= 10_000
        assert sum(map(len, found.links)) <= 4096 * 10_000
    else:
        assert "takes" in found


@pytest.mark.parametrize("kind", ["application/xml", "application/rss+xml", "text/plain"])
def test_entities_of_xml_are_not_expanded(kind: str) -> None:
    laughs = b"<!DOCTYPE a [<!ENTITY a 'ha'>" + b"".join(
        b"<!ENTITY %s '%s'>" % (bytes([98 + level]), b"&%s;" % bytes([97 + level]) * 10)
        for level in range(12)
    )
    found = read_page(laughs + b"]><a>&m;</a>", kind)
    assert isinstance(found, PageText)
    assert "&m;" in found.lines[-1]


@pytest.mark.parametrize("where", ["header", "page"])
@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", "unicode_escape", "zlib", "rot13"])  # fmt: skip
def test_a_page_has_a_character_set_of_the_web(charset: str, where: str) -> None:
    content = b"<p>ok\\u0041+AGE-" + b"\xc3\xa9" * 100_000 + b"-" + b"z9" * 300_000
    kind = "text/html"
    if where == "header":
        kind += f"; charset={charset}"
    else:
        content = f"<meta charset={charset}>".encode() + content
    found = read_page(content, kind)
    assert isinstance(found, PageText), found
    assert found.lines[0].startswith("ok\\u0041+AGE-é")


def test_every_label_has_a_codec_that_is_linear() -> None:
    for label, codec in CODECS.items():
        assert b"abc \xe4".decode(codec, "replace")
        assert codec_of(f" {label.upper()}\n") == codec
    begun = time.monotonic()
    for codec in set(CODECS.values()):
        (b"\xc3\xa9z-\x1b$B\x00" * 250_000).decode(codec, "replace")
    assert time.monotonic() - begun < 60, "quadratic ones take hours"


def test_a_page_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        reader = PageReader(browser_config())
        reader._seconds = 0.0001
        try:
            with pytest.raises(PageFailure, match="takes longer"):
                await reader.document("http://a.test/", b"x" * SIZE, "text/plain", "")
            assert not reader._pool.process_ids
        finally:
            await reader.close()

    run(body)


def test_searching_a_page_does_not_hold_up_others() -> None:
    document = document_of("http://a.test/", b"a \xc4\xb0" * 500_000, "text/plain")

    async def body() -> None:
        reader = PageReader(browser_config())
        try:
            assert await reader.find(document, "a " * 1000 + "b", "") == []
            assert await reader.find(document, "A", "")
        finally:
            await reader.close()

    run(body)


def test_the_pages_of_a_response_are_bounded_together() -> None:
    pages = Pages(64)
    document = document_of("http://a.test/", b"abcdefghi\n" * 40_000, "text/plain")
    for _ in range(64):
        pages.add(document)
    assert sum(page.size for page in pages.cursors.values()) <= MAX_CHARACTERS
    assert pages.get(-1) is not None


# Files.


FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def page(contents: bytes = b"4 0 R", more: bytes = b"") -> bytes:
    return (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents %s "
        b"/Resources << /Font << /F 5 0 R >> %s >> >>" % (contents, more)
    )


def one_page(
    content: bytes, font: bytes = FONT, *others: bytes, more: bytes = b"", kids: bytes = b"3 0 R"
) -> bytes:
    pages = b"<< /Type /Pages /Kids [%s] /Count 1 >>" % kids
    return pdf_of(CATALOGUE, pages, page(more=more), content, font, *others)


def deflated(data: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        data = zlib.compress(data, 9)
    return stream(data, b"/Filter [%s]" % (b"/FlateDecode " * times))


def zeros(megabytes: int) -> bytes:
    """Zeros, deflated to a thousandth."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(b"\x00" * 1_048_576) for _ in range(megabytes)]
    return b"".join([*parts, packer.flush()])


TEXT = b"BT /F 9 Tf (word) Tj ET "
FILES: dict[str, Callable[[], bytes]] = {
    "a stream that inflates a thousand times": lambda: one_page(stream(zeros(600), b"/Filter /FlateDecode")),
    "a stream that inflates twice": lambda: one_page(
        stream(zlib.compress(zeros(600), 9), b"/Filter [/FlateDecode /FlateDecode]")
    ),
    "many filters": lambda: one_page(deflated(TEXT, 2000)),
    "run lengths": lambda: one_page(stream(b"\x81\x00" * 5_000_000, b"/Filter /RunLengthDecode")),
    "hexadecimal digits": lambda: one_page(stream(b"20" * 20_000_000, b"/Filter /ASCIIHexDecode")),
    "zeros in base 85": lambda: one_page(stream(b"z" * 20_000_000, b"/Filter /ASCII85Decode")),
    "codes of LZW": lambda: one_page(stream(b"\x80\x0b\x60\x50" * 2_000_000, b"/Filter /LZWDecode")),
    "very much text": lambda: one_page(deflated(TEXT * 3_000_000)),
    "very many operators": lambda: one_page(deflated(b"q 1 0 0 1 0 0 cm Q " * 3_000_000)),
    "nested arrays in a page": lambda: one_page(stream(b"[" * 2_000_000)),
    "nested dictionaries in a page": lambda: one_page(stream(b"<<" * 2_000_000)),
    "nested states": lambda: one_page(stream(b"q " * 3_000_000)),
    "a long name": lambda: one_page(stream(b"/" + b"x" * 20_000_000)),
    "a long string": lambda: one_page(stream(b"(" + b"\\" * 20_000_000)),
    "brackets in a string": lambda: one_page(stream(b"(" * 20_000_000)),
    "a page tree that is a circle": lambda: one_page(stream(TEXT), kids=b"2 0 R"),
    "a page tree with two ways to itself": lambda: one_page(stream(TEXT), kids=b"2 0 R 2 0 R 3 0 R"),
    "a page two million times": lambda: one_page(stream(TEXT), kids=b"3 0 R " * 2_000_000),
    "a form that draws itself": lambda: one_page(
        stream(b"/X Do"), FONT,
        stream(b"/X Do /X Do", b"/Type /XObject /Subtype /Form /Resources << /XObject << /X 6 0 R >> >>"),
        more=b"/XObject << /X 6 0 R >>",
    ),
    "forms that draw each other": lambda: one_page(
        stream(b"/X6 Do"), FONT,
        *[
            stream(
                b"/X%d Do " % (number + 1) * 10,
                b"/Type /XObject /Subtype /Form /Resources << /XObject << /X%d %d 0 R >> >>"
                % (number + 1, number + 1),
            )
            for number in range(6, 40)
        ],
        more=b"/XObject << /X6 6 0 R >>",
    ),
    "a reference to itself": lambda: pdf_of(CATALOGUE, b"2 0 R"),
    "a length that refers to itself": lambda: one_page(b"<< /Length 4 0 R >>\nstream\nx\nendstream"),
    "a table that comes before itself": lambda: pdf_of(CATALOGUE, b"<<>>", trailer=b"/Prev START"),
    "nested arrays": lambda: pdf_of(b"[" * 2_000_000),
    "nested dictionaries": lambda: pdf_of(b"<< /A " * 1_000_000),
    "a range of two billion characters": lambda: one_page(
        deflated(TEXT),
        b"<< /Type /Font /Subtype /Type0 /BaseFont /F /Encoding /Identity-H /ToUnicode 6 0 R >>",
        stream(b"begincmap 1 beginbfrange <00000000> <7fffffff> <0000> endbfrange endcmap"),
    ),
    "widths of a billion characters": lambda: one_page(
        deflated(TEXT),
        b"<< /Type /Font /Subtype /Type0 /BaseFont /F /Encoding /Identity-H /DescendantFonts "
        b"[<< /Type /Font /Subtype /CIDFontType2 /W [0 1000000000 500] >>] >>",
    ),
    "a table of a billion objects": lambda: b"%PDF-1.7\nxref\n0 1000000000\n" + b"0000000000 00000 n \n" * 99_999
    + b"trailer << /Root 1 0 R /Size 1000000000 >> startxref\n9\n%%EOF",
    "no table and many objects": lambda: b"%PDF-1.7\n" + b"1 0 obj << >> endobj\n" * 1_000_000 + b"trailer << /Root 1 0 R >>",
    "headers": lambda: b"%PDF-1.7\n" * 3_000_000,
    "end marks": lambda: b"%PDF-1.7\n" + b"startxref\n0\n%%EOF\n" * 1_000_000,
    "an encryption with very many rounds": lambda: pdf_of(
        CATALOGUE, b"<<>>",
        trailer=b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 5 /R 6 /Length 2147483647 /P -1 /O (%s) /U (%s) >>"
        % (b"o" * 48, b"u" * 48),
    ),
}  # fmt: skip
QUICK = (
    "a page tree that is a circle",
    "a form that draws itself",
    "nested arrays",
    "zeros in base 85",
)


def read_file(content: bytes, filename: str, **keys: Any) -> str:
    """The text of the first chunks, or what the failure says."""
    keys = {"reading_time": READING_SECONDS, "reading_memory": 536_870_912, **keys}
    config = FileSearchConfig(**keys)
    sizes = StaticSizes(max_chunk_size_tokens=800, chunk_overlap_tokens=400)

    async def body() -> str:
        reader = new_reader(config)
        try:
            chunks = await chunks_of(content, filename, sizes, reader)
        except ReadingFailure as failure:
            return str(failure)
        finally:
            assert not reader.pool.process_ids, "its process is gone"
            await reader.close()
        return chunks[0].text

    return run(body)


@pytest.mark.parametrize(
    "what",
    [what if what in QUICK else pytest.param(what, marks=pytest.mark.slow) for what in FILES],
)
def test_a_pdf_is_read_or_fails_within_limits(what: str) -> None:
    assert read_file(FILES[what](), "a.pdf")


def test_a_sound_pdf_is_read() -> None:
    assert read_file(one_page(deflated(TEXT)), "a.pdf", reading_time=LONG) == "word"


@pytest.mark.slow
@pytest.mark.parametrize("what", PAGES)
def test_an_html_file_is_read_or_fails_within_limits(what: str) -> None:
    assert read_file(PAGES[what] * 8, "a.html")


TEXTS = {
    "one line": b"x" * 16_000_000,
    "line breaks": b"x" + b"\n" * 16_000_000 + b"x",
    "white space": b"x" + b" " * 16_000_000 + b"x",
    "what is not ASCII": "é".encode() * 8_000_000,
    "surrogates": b"\xff\xfe" + b"\x00\xd8" * 8_000_000,
    "broken UTF-8": b"x" * 10_000_000 + b"\xc3" * 900_000,
    "words": b"x. " * 5_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", TEXTS)
def test_a_text_file_is_read_or_fails_within_limits(what: str) -> None:
    assert read_file(TEXTS[what], "a.txt")


# By the API door.


class Site:
    """Answers every path with one page."""

    def __init__(self) -> None:
        self.kind, self.body = "text/html", b""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", site.kind)
                self.send_header("content-length", str(len(site.body)))
                self.end_headers()
                self.wfile.write(site.body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/page"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def test_an_expensive_page_does_not_hold_up_other_requests(
    gateway_server: Any, site: Site, tmp_path: Path
) -> None:
    site.kind = "text/html; charset=punycode"
    site.body = b"<p>found it " + b"\xc3\xa9" * 100_000 + b"-" + b"z9" * 100_000
    scenario = tmp_path / "scenario.json"
    opening = {"call": {"name": "open_page", "arguments": {"id": site.url}}}
    rules = [
        {"when": "open it", "pieces": [opening]},
        {"when": "found it", "pieces": [{"text": "Read."}]},
    ]
    scenario.write_text(json.dumps(rules), encoding="utf-8")
    (tmp_path / "index").mkdir()
    browser = {"provider": "local", "allow_private": True, "local": {"path": str(tmp_path / "index")}}  # fmt: skip
    gateway = gateway_server(
        {
            "models": {"m": {"engine": "scripted", "path": str(scenario)}},
            "tools": {"browser": browser},
        }
    )
    body = {"model": "m", "input": "open it", "tools": [{"type": "web_search"}]}
    many = 40  # more than there are threads for blocking work
    with httpx.Client(timeout=120) as client:

        def ask() -> None:
            answers.append(client.post(f"{gateway.base_url}/responses", json=body).json())

        answers: list[dict[str, Any]] = []
        threads = [Thread(target=ask) for _ in range(many)]
        for thread in threads:
            thread.start()
        slowest = 0.0
        while any(thread.is_alive() for thread in threads):
            begun = time.monotonic()
            assert client.get(gateway.base_url.removesuffix("/v1") + "/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.05)
    assert slowest < 30, f"/health waited {slowest:.1f} s"
    assert [answer["output"][-1]["content"][0]["text"] for answer in answers] == ["Read."] * many
