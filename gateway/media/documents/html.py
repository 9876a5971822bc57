"""Reads the text of HTML pages: blocks become lines, and headings become Markdown headings."""

from __future__ import annotations

_DEEPEST = 512
_PIECE = 16_384
_SKIPPED = frozenset({"audio", "canvas", "iframe", "math", "object", "script", "select", "style", "svg", "template", "video"})  # fmt: skip
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "div", "dl", "dt",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav",
        "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul",
    }
)  # fmt: skip


class TooDeep(Exception):
    """The page nests its elements deeper than browsers do."""


class HtmlText:
    """Target of the HTML parser: blocks become lines, and headings become Markdown headings."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._text: list[str] = []
        self._skipped: list[str] = []
        self._depth = 0
        self._pre = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TooDeep
        if tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if tag in ("td", "th") and self._text:
            self._text.append(" | ")
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "pre":
                self._pre += 1
            elif tag == "li":
                self._text.append("* ")
            elif len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                self.lines.append("")
                self._text.append("#" * int(tag[1]) + " ")

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "pre":
                self._pre = max(self._pre - 1, 0)
            elif tag in ("p", "table", "ul", "ol"):
                self.lines.append("")

    def data(self, text: str) -> None:
        if not self._skipped:
            self._text.append(text)

    def comment(self, text: str) -> None:
        """Comments are ignored."""

    def close(self) -> str:
        self._end_block()
        kept: list[str] = []
        for line in self.lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept)

    def _end_block(self) -> None:
        whole, self._text = "".join(self._text), []
        if self._pre:
            self.lines += [line.rstrip() for line in whole.strip("\n").splitlines()]
        elif (text := " ".join(whole.split())) and text != "*":
            self.lines.append(text)


def html_text(content: bytes) -> str:
    from lxml import etree  # type: ignore[import-untyped]

    target = HtmlText()
    utf8 = content.startswith(b"\xef\xbb\xbf") or _is_utf8(content)
    parser = etree.HTMLParser(target=target, huge_tree=False, encoding="utf-8" if utf8 else None)
    try:
        for start in range(0, len(content), _PIECE):
            parser.feed(content[start : start + _PIECE])
        if content:
            parser.close()
    except (TooDeep, etree.XMLSyntaxError):
        pass  # keep the text that was read so far
    return target.close()


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
