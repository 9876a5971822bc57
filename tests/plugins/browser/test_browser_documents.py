"""Pages as text: what is kept, what hostile pages cost, and how much is shown."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import CallRecord, Source
from gateway_browser.documents import PageText, document_of, is_readable, wrapped
from gateway_browser.domains import DomainFilter, read_domains
from gateway_browser.errors import PageFailure
from gateway_browser.fetching import check_url
from gateway_browser.pages import Pages
from gateway_browser.views import matches, matching_lines, view


def found(page: PageText, pattern: str, *, characters: int) -> str:
    """What `find_in_page` shows."""
    return matches(1, page, pattern, matching_lines(page.lines, pattern), characters=characters)


PAGE = """<html><head><title> A &amp; \n B</title><base href="/docs/"><style>p { }</style></head><body>
<nav><a href=one>Link <b>one</b><div>more</div></a> | <a href="#here">here</a></nav>
<h1>Head</h1><p>Hello <b>w</b>orld &eacute;<br>next
<ul><li>a<li>b <a href="http://o.test/">o</a> <a href="one">again</a></ul>
<table><tr><td>1<td>2</tr></table><pre>  x = 1
    y</pre><script>bad()</script><a href="javascript:x">click</a><img alt="a picture"></body></html>"""


def test_a_page_is_read_as_blocks_with_numbered_links() -> None:
    document = document_of("http://a.test/", PAGE.encode(), "text/html; charset=utf-8")
    assert document.title == "A & B"
    assert list(document.lines) == [
        "【0†Link one more】 | 【1†here】",
        "",
        "# Head",
        "Hello world é",
        "next",
        "* a",
        "* b 【2†o†o.test】 【0†again】",
        "1 | 2",
        "  x = 1",
        "    y",
        "clicka picture",
    ]
    assert document.links == (
        "http://a.test/docs/one", "http://a.test/docs/#here", "http://o.test/",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        (b"<meta charset='windows-1252'><p>\x80", "text/html", "€"),
        ("日本".encode("utf-16"), "text/plain", "日本"),
        (b"\xef\xbb\xbfok", "text/plain", "ok"),
        (b"a\xff", "text/plain", "a\ufffd"),
        (b"ok", "text/plain; charset=no-such-thing", "ok"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"", "text/html", "(This page is empty.)"),
    ],
)
def test_text_is_decoded_by_what_is_said_of_it(content: bytes, kind: str, text: str) -> None:
    assert document_of("http://a.test/", content, kind).lines == (text,)


def test_what_is_no_text_is_not_read() -> None:
    assert [is_readable(kind) for kind in ("image/png", "application/pdf", "TEXT/CSV")] == [
        False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    [
        "<div>", "<div></x>", "<b></li>", "<a href=x>", "<!--", "<a b='", "<table>", "<p>x", "</p>", "<svg>", "&a",
        "<script>", "x", "<li><ul>", "<title>", "<a href=http://[>x</a>", "【0†", "<td>",
    ],
)  # fmt: skip
def test_a_hostile_page_costs_no_more_than_another(hostile: str) -> None:
    content = (hostile * (500_000 // len(hostile))).encode()
    began = time.thread_time()
    document_of("http://a.test/", content, "text/html")
    assert time.thread_time() - began < 20


@settings(max_examples=200)
@given(st.binary(max_size=300), st.sampled_from(["text/html", "text/plain", "text/html; charset=utf-7", "x"]))  # fmt: skip
def test_any_bytes_are_a_document(content: bytes, kind: str) -> None:
    document = document_of("http://a.test/", content, kind)
    assert document.lines
    "\n".join(document.lines).encode()


@given(st.text(alphabet="【】†L0<>ab/ ", max_size=60))
def test_no_page_can_forge_a_mark(text: str) -> None:
    document = document_of("http://a.test/", text.encode(), "text/html")
    for line in document.lines:
        for mark in re.findall("【[^】]*】?", line):
            assert re.fullmatch(r"【\d+†[^【】]+】", mark)


@given(st.text(alphabet="ab \u3000é", max_size=500))
def test_wrapping_keeps_every_word(text: str) -> None:
    assert " ".join(wrapped(text)).split() == text.split()


def document(lines: int) -> PageText:
    return PageText(
        url="http://a.test/", title="T", lines=tuple(f"line {number}" for number in range(lines))
    )


@given(st.integers(1, 60), st.integers(-5, 80), st.integers(-1, 80), st.integers(1, 500))
def test_a_view_shows_a_stretch_of_lines_with_their_numbers(
    total: int, first: int, count: int, characters: int
) -> None:
    shown = view(3, document(total), first=first, count=count, characters=characters)
    found = re.search(r"viewing lines \[(\d+) - (\d+)\] of (\d+)", shown)
    assert found is not None
    begin, end, last = map(int, found.groups())
    assert last == total - 1
    assert begin == min(max(first, 0), total - 1)
    assert begin <= end <= last
    assert count <= 0 or end - begin < count
    numbers = [int(each) for each in re.findall(r"^L(\d+): line \1$", shown, re.MULTILINE)]
    assert numbers == list(range(begin, end + 1))


def test_what_is_found_may_go_over_the_end_of_a_line() -> None:
    page = PageText(url="", title="T", lines=("one", "the quick brown", "fox jumps", "end"))
    shown = found(page, "Brown  fox", characters=1000)
    assert "**1 matches for 'Brown  fox'**" in shown
    assert "L1: the quick brown\nL2: fox jumps" in shown
    assert "**0 matches" in found(page, "cat", characters=1000)
    many = found(document(200), "line", characters=500)
    assert "**200 matches" in many
    assert "matches are shown.)" in many


def test_pages_keep_their_cursors_and_are_bounded() -> None:
    earlier = CallRecord(
        name="web_search",
        arguments="",
        result="",
        sources=(
            Source(cursor=4, url="http://a.test/1", lines=(0, 1)),
            Source(cursor=4, url="http://a.test/2", lines=(3, 3)),
            Source(cursor=6, url="http://a.test/3", title="Three"),
        ),
    )
    pages = Pages(3, [earlier])
    found, opened = pages.get(4), pages.get(-1)
    assert found is not None
    assert opened is not None
    assert list(found.links) == ["http://a.test/1", "http://a.test/2"]
    assert (opened.cursor, opened.url, opened.document) == (6, "http://a.test/3", None)
    assert pages.add(document(1)).cursor == 7
    assert pages.add(document(1)).cursor == 8
    assert pages.get(4) is None, "it was not used for longest"
    assert pages.get(5) is None


@pytest.mark.parametrize(
    ("url", "domains", "allowed"),
    [
        ("https://a.test/x", (), True),
        ("https://a.test/x", ("a.test",), True),
        ("https://b.A.test./x", ("a.test",), True),
        ("https://evila.test/x", ("a.test",), False),
        ("https://a.test.evil.net/x", ("a.test",), False),
        ("https://a.test@evil.net/x", ("a.test",), False),
        ("ftp://a.test/x", (), False),
        ("https://user:secret@a.test/", (), False),
        ("https:///x", (), False),
        ("https://[bad/x", (), False),
        ("https://a.test:99999/", (), False),
        ("https://a.test/" + "x" * 5000, (), False),
    ],
)
def test_which_urls_are_opened(url: str, domains: tuple[str, ...], allowed: bool) -> None:
    pages = DomainFilter(allowed=read_domains(domains, ()))
    if allowed:
        check_url(url, pages)
        return
    with pytest.raises(PageFailure) as refused:
        check_url(url, pages)
    assert "secret" not in str(refused.value)
