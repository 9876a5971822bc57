"""The paragraphs and tables of Word documents and slides, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from gateway.media.documents.failures import TextLimit
from gateway.media.documents.office_parts import attribute_of

_HEADING: Final = re.compile(r"heading ?([1-6])", re.IGNORECASE)
_MAX_STYLES: Final = 10_000
_BULLET: Final = "* "


class ParagraphStyles:
    """Reads which styles of a Word document are headings and lists. The names of Word's built-in styles identify them:
    the ids of styles depend on the language of Word."""

    def __init__(self) -> None:
        self.prefixes: dict[str, str] = {}
        """Markdown that precedes a paragraph, by the id of its style."""
        self._style = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "style":
                self._style = attribute_of(attributes, "styleId")
            case "name" if len(self.prefixes) < _MAX_STYLES:
                if prefix := _heading_prefix(attribute_of(attributes, "val")):
                    self.prefixes[self._style] = prefix
            case "numPr" if len(self.prefixes) < _MAX_STYLES:
                self.prefixes.setdefault(self._style, _BULLET)

    def end(self, name: str) -> None:
        if name == "style":
            self._style = ""

    def data(self, text: str) -> None:
        pass


class Paragraphs(TextLimit):
    """Reads the lines of Word documents and slides: headings and lists as in Markdown, and rows of tables with `|`."""

    def __init__(self, most: int, prefixes: Mapping[str, str] = {}) -> None:
        """`prefixes` is `ParagraphStyles.prefixes`."""
        super().__init__(most)
        self._prefixes = prefixes
        self._lines: list[str] = []
        self._paragraphs: list[list[str]] = []
        """The texts of open paragraphs. The paragraphs of text boxes are nested in others."""
        self._cells: list[list[str]] = []
        """The texts of open cells. The cells of inner tables are nested in others."""
        self._rows: list[list[str]] = []
        self._in_text = False
        self._skipped = 0
        self._title = ""
        """A line that is inserted before the next line, if there is one."""
        self._comment = ""
        """Text that is inserted before the text of a comment that has just begun."""

    def add(self, line: str) -> None:
        self._lines.append(self.count(line))

    def text(self) -> str:
        return "\n".join(self._lines).strip("\n")

    @contextmanager
    def titled(self, title: str) -> Iterator[None]:
        """Insert `title` before the text that is read within the context, if there is any."""
        self._title = title
        yield
        self._title = ""

    @contextmanager
    def unrepeated(self) -> Iterator[None]:
        """Leave out lines that were read before, while the context is open."""
        before, self._lines = self._lines, []
        yield
        seen = set(before)
        self._lines = before + [line for line in self._lines if line not in seen]

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._skipped or _is_skipped(name, attributes):
            self._skipped += 1
            return
        match name:
            case "p":
                self._paragraphs.append([self._comment] if self._comment else [])
                self._comment = ""
            case "t":
                self._in_text = True
            case "tab" if self._paragraphs and self._paragraphs[-1]:
                self._paragraphs[-1].append("\t")
            case "br" | "cr" if self._paragraphs:
                self._paragraphs[-1].append("\n")
            case "noBreakHyphen" if self._paragraphs:
                self._paragraphs[-1].append("-")
            case "pStyle" if self._paragraphs and not self._paragraphs[-1]:
                if prefix := self._prefix(attribute_of(attributes, "val")):
                    self._paragraphs[-1].append(prefix)
            case "numPr" if self._paragraphs and not self._paragraphs[-1]:
                self._paragraphs[-1].append(_BULLET)
            case "tr":
                self._rows.append([])
            case "tc":
                self._cells.append([])
            case "comment":
                author = " ".join(attribute_of(attributes, "author").split())
                self._comment = self.count(f"[Comment by {author}] " if author else "[Comment] ")

    def end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        match name:
            case "t":
                self._in_text = False
            case "p" if self._paragraphs:
                whole = "".join(self._paragraphs.pop()).rstrip()
                self._put(whole if whole.strip("#* ") else "")
            case "tc" if self._cells:
                cell = " ".join(each for each in self._cells.pop() if each)
                if self._rows:
                    self._rows[-1].append(cell.replace("\n", " "))
            case "tr" if self._rows:
                self._put(" | ".join(self._rows.pop()))

    def data(self, text: str) -> None:
        if self._in_text and self._paragraphs and not self._skipped:
            self._paragraphs[-1].append(self.count(text))

    def _prefix(self, style: str) -> str:
        return self._prefixes.get(style) or _heading_prefix(style)

    def _put(self, text: str) -> None:
        lines = self._cells[-1] if self._cells else self._lines
        if text and self._title:
            self.add(self._title)
            self._title = ""
        if text or (lines and lines[-1]):  # one of several consecutive empty lines is kept
            lines.append(text)


def _is_skipped(name: str, attributes: Mapping[str, str]) -> bool:
    """Whether the text of an element is left out: slide numbers, and the fallback that older programs show in place of
    a preceding choice."""
    return name == "Fallback" or (name == "fld" and attributes.get("type") == "slidenum")


def _heading_prefix(style: str) -> str:
    heading = _HEADING.match(style)
    return "#" * int(heading[1]) + " " if heading else ""
