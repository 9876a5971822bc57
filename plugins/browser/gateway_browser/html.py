"""Converts HTML to text blocks with numbered links."""

from __future__ import annotations

from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

DEEPEST: Final = 512
"""Maximum nesting depth of elements, as in browsers. The rest of a page that exceeds it is left out, because parsing
gets ever slower."""
LONGEST_URL: Final = 4096
"""Maximum length of a link in characters; longer links are shown without a number."""
MAX_LINKS: Final = 10_000
_PIECE: Final = 16_384
"""Characters given to the parser at a time; the depth is checked in between."""

_SKIPPED = frozenset(
    {"audio", "canvas", "head", "iframe", "math", "object", "script", "select", "style", "svg", "template", "video"}
)  # fmt: skip
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog", "div",
        "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
        "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


class TooDeep(Exception):
    """The page nests its elements deeper than `DEEPEST`."""


class HtmlReader:
    """Target of the HTML parser, in one pass. `blocks` are paragraphs and lines of preformatted text."""

    def __init__(self, url: str) -> None:
        self.title = ""
        self.blocks: list[str] = []
        self.links: dict[str, int] = {}
        """The number of each linked URL."""
        self._page = urldefrag(url).url
        self._base = url
        self._host = urlsplit(url).hostname
        self._depth = 0
        self._skipped: list[str] = []
        self._title: list[str] | None = None
        self._pre = 0
        self._text: list[str] = []
        """Text of the current block."""
        self._href: str | None = None
        self._anchor: list[str] = []
        """Text of the current link."""

    def read(self, text: str) -> None:
        """Read a whole page."""
        from lxml import etree  # type: ignore[import-untyped]

        parser = etree.HTMLParser(target=self, huge_tree=False)
        try:
            for start in range(0, len(text), _PIECE):
                parser.feed(text[start : start + _PIECE])
            if text:
                parser.close()
        except TooDeep:
            self.close()
            self.blocks.append("(The rest of this page is nested too deep to be read.)")
        except etree.XMLSyntaxError:
            self.close()  # the page contains no HTML at all

    # Methods called by the parser.

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooDeep
        if tag == "title" and not self.title:
            self._title = []
        if tag == "base" and "href" in attributes:
            base = _joined(self._base, attributes["href"])
            self._base = base if base is not None and len(base) <= LONGEST_URL else self._base
        if tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if tag == "a":
            self._end_link()
            self._href = attributes.get("href")
        elif tag == "img":
            self.data(attributes.get("alt", ""))
        elif tag in ("td", "th") and self._text:
            self.data(" | ")
        elif tag in _BLOCKS:
            self._begin_block(tag)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "title" and self._title is not None:
            self.title, self._title = " ".join("".join(self._title).split()), None
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
            return
        if tag == "a":
            self._end_link()
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "pre" and self._pre:
                self._pre -= 1

    def data(self, text: str) -> None:
        if self._title is not None:
            self._title.append(text)
        if self._skipped:
            return
        (self._text if self._href is None else self._anchor).append(text)

    def comment(self, text: str) -> None:
        """Comments are ignored."""

    def close(self) -> None:
        self._end_link()
        self._end_block()

    def _begin_block(self, tag: str) -> None:
        if self._href is not None:
            self._anchor.append(" ")
            return
        self._end_block()
        if tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._text.append("* ")
        elif tag in _HEADINGS:
            if self.blocks and self.blocks[-1]:
                self.blocks.append("")
            self._text.append(_HEADINGS[tag])

    def _end_block(self) -> None:
        if self._href is not None:
            self._anchor.append(" ")
            return
        if not self._text:
            return
        whole, self._text = "".join(self._text), []
        if self._pre:
            self.blocks += [line.expandtabs(4).rstrip() for line in whole.strip("\n").splitlines()]
        elif (text := " ".join(whole.split())) and text not in ("*", "|"):
            self.blocks.append(text)

    def _end_link(self) -> None:
        if self._href is None:
            return
        href, self._href = self._href, None
        text, self._anchor = " ".join("".join(self._anchor).split()), []
        usable = text and len(href) <= LONGEST_URL and len(self.links) < MAX_LINKS
        url = _joined(self._base, href) if usable else None
        if url is None or len(url) > LONGEST_URL or urldefrag(url).url == self._page:
            self._text.append(text)
            return
        number = self.links.setdefault(url, len(self.links))
        host = urlsplit(url).hostname
        where = f"†{host}" if host != self._host else ""
        self._text.append(f"【{number}†{text}{where}】")


def _joined(base: str, href: str) -> str | None:
    """The absolute URL of a link, or None if it does not lead to a page."""
    try:
        url = urljoin(base, href.strip())
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.hostname else None
