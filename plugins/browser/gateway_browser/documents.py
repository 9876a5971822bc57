"""Converts a page to lines of text with numbered links."""

from __future__ import annotations

import codecs
import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_browser.encodings import codec_of
from gateway_browser.html import HtmlReader

WIDTH: Final = 100
"""Maximum characters per line, unless a single word is longer."""
_LONGEST_WORD: Final = 400
_LONGEST_TITLE: Final = 500
MAX_LINES: Final = 50_000
MAX_CHARACTERS: Final = 8_000_000
"""Maximum total length of the lines in characters; the rest of a page is left out."""
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{1,200}charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_MARKS = str.maketrans({"【": "〖", "】": "〗"})
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/rss+xml",
        "application/atom+xml",
        "application/xml",
        "application/yaml",
    }
)


class PageText(Struct, frozen=True, kw_only=True):
    """A page converted to text."""

    url: str
    title: str
    lines: tuple[str, ...]
    links: tuple[str, ...] = ()
    """The targets of the marks `【<number>†…】` in the lines."""


def is_readable(content_type: str) -> bool:
    """Whether pages of this type can be converted."""
    kind = _kind(content_type)
    return kind in _HTML or kind in _TEXT or kind.startswith("text/")


def document_of(url: str, content: bytes, content_type: str) -> PageText:
    """Convert a page. Undecodable bytes become U+FFFD. The brackets of citation marks are replaced, so that no page
    can forge one.

    Takes linear time for ordinary pages. A malicious page may take much time or memory, so `PageReader` runs this
    in a process that can be killed.
    """
    title, lines, links = read_page(url, content, content_type)
    return PageText(url=url, title=title, lines=tuple(lines), links=tuple(links))


def read_page(url: str, content: bytes, content_type: str) -> tuple[str, list[str], list[str]]:
    """The title, the lines and the links of a page."""
    text = _decoded(content, content_type).translate(_MARKS)
    if _kind(content_type) in _HTML:
        reader = HtmlReader(url)
        reader.read(text)
        title, blocks, links = reader.title, reader.blocks, list(reader.links)
    else:
        title, blocks, links = "", text.splitlines(), []
    lines: list[str] = []
    left = MAX_CHARACTERS
    for block in blocks:
        if left <= 0 or len(lines) >= MAX_LINES:
            lines = [*lines[:MAX_LINES], "(The rest of this page is left out: it is too long.)"]
            break
        lines += wrapped(block)
        left -= len(block)
    while lines and not lines[-1]:
        lines.pop()
    return (
        (title or _name_of(url))[:_LONGEST_TITLE],
        lines or ["(This page is empty.)"],
        links,
    )


def wrapped(text: str) -> list[str]:
    """Wrap a paragraph into lines. Leading spaces are kept on the first line."""
    text = text.rstrip()
    if len(text) <= WIDTH:
        return [text]
    indent = text[: len(text) - len(text.lstrip())][: WIDTH // 2]
    lines: list[str] = []
    line: list[str] = []
    length = len(indent)
    for whole in text.split():
        for start in range(0, len(whole), _LONGEST_WORD):
            word = whole[start : start + _LONGEST_WORD]
            if line and length + len(word) > WIDTH:
                lines.append(" ".join(line))
                line, length = [], 0
            line.append(word)
            length += len(word) + 1
    lines.append(" ".join(line))
    return [indent + lines[0], *lines[1:]]


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or "text/html"


def _decoded(content: bytes, content_type: str) -> str:
    """Decode by byte order mark, header, or the page's own declaration; default UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    named = _CHARSET.search(content_type)
    said = _META_CHARSET.search(content[:2048])
    header = codec_of(named[1]) if named else None
    meta = codec_of(said[1].decode("ascii", "replace")) if said else None
    if meta is not None and meta.startswith("utf-16"):
        meta = "utf-8"  # in real UTF-16, the declaration would not have matched
    text = content.decode(header or meta or "utf-8", "replace")
    # UTF-16 may contain lone surrogates, which are not valid in a prompt.
    return text.encode("utf-8", "replace").decode().removeprefix("\ufeff")


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    return parts.path.rstrip("/").rpartition("/")[2] or parts.hostname or url
