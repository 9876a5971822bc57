"""From a page's bytes to lines of text that a model can read, with its links numbered."""

from __future__ import annotations

import codecs
import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_browser.html import HtmlReader

WIDTH: Final = 100
"""Characters of a line; longer only where one word is."""
_LONGEST_WORD: Final = 400
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


class Document(Struct, frozen=True, kw_only=True):
    """A page as text."""

    url: str
    title: str
    lines: tuple[str, ...]
    links: tuple[str, ...] = ()
    """What the marks `【<number>†…】` in the lines lead to."""


def is_readable(content_type: str) -> bool:
    """Whether a page of this type can be made a document."""
    kind = _kind(content_type)
    return kind in _HTML or kind in _TEXT or kind.startswith("text/")


def document_of(url: str, content: bytes, content_type: str) -> Document:
    """A page as text; never raises, whatever the page is. Linear in its size, so far as its nesting is that of a page.

    What cannot be decoded becomes U+FFFD. Brackets of citation marks become others: no page can forge one.
    """
    text = _decoded(content, content_type).translate(_MARKS)
    if _kind(content_type) in _HTML:
        reader = HtmlReader(url)
        reader.read(text)
        title, blocks, links = reader.title, reader.blocks, tuple(reader.links)
    else:
        title, blocks, links = "", text.splitlines(), ()
    lines = [line for block in blocks for line in wrapped(block)]
    while lines and not lines[-1]:
        lines.pop()
    return Document(
        url=url,
        title=title or _name_of(url),
        lines=tuple(lines or ["(This page is empty.)"]),
        links=links,
    )


def wrapped(text: str) -> list[str]:
    """A paragraph as lines; its leading spaces are kept on the first."""
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
    """By its byte order mark, the header, what the page says of itself, else UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    named = _CHARSET.search(content_type)
    said = _META_CHARSET.search(content[:2048])
    charset = named[1] if named else said[1].decode("ascii", "replace") if said else "utf-8"
    try:
        text = content.decode(charset, "replace")
    except (LookupError, ValueError):
        text = content.decode("utf-8", "replace")
    # Some codecs (UTF-7, the escapes) make lone surrogates, which no prompt can hold.
    return text.encode("utf-8", "replace").decode().removeprefix("\ufeff")


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    return parts.path.rstrip("/").rpartition("/")[2] or parts.hostname or url
