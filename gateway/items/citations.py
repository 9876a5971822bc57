"""Citation marks in a model's text (`【3†L5-L9】`), which tool results contain, and their replacement for the client.

A mark of a known page becomes a Markdown link, `([example.com](https://example.com/page))`, as in OpenAI's own answers,
preceded by a space if there is none. Its annotation covers the link without that space. A mark of a known file
(`【4:0†handbook.pdf】`) is removed together with a space before it, unless a word follows directly; its annotation refers
to the position. Other text is unchanged. If links are disabled, marks of pages are removed like marks of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct

from gateway.plugins.protocols import FileSource, Source

_MARK = re.compile(r"【(\d{1,9})†([^【】\n]{0,64})】")
_FILE_MARK = re.compile(r"【(\d{1,9}:\d{1,9})(?:†[^【】\n]{0,64})?】")
_LINES = re.compile(r"L(\d{1,9})(?:-L?(\d{1,9}))?(?:[,;] ?L\d{1,9}(?:-L?\d{1,9})?)*")
_BEGUN = re.compile(r"【(?:\d{1,9}(?::|:\d{1,9})?|\d{1,9}(?::\d{1,9})?†[^【】\n]{0,64})?")
_NO_SPACE_AFTER = frozenset(" \t\n([{\"'")
_OPENING = frozenset("([{【\"'“‘")


class Citation(Struct, frozen=True):
    """A mark and the link that replaces it; the link is empty if links are disabled."""

    source: Source
    link: str
    lines: tuple[int, int]
    """First and last line of the mark's first range."""


class FileMark(Struct, frozen=True):
    """A mark of a file, which is removed from the text."""

    source: FileSource


Piece: TypeAlias = str | Citation | FileMark


class CitationReader:
    """Splits streamed text into text and citations. The result depends on the characters fed, not on how they were
    chunked.

    Holds back what may still become a mark (at most 86 characters), and a space that may precede a mark of a file.
    Linear.
    """

    def __init__(
        self,
        sources: Mapping[int, Sequence[Source]],
        files: Mapping[str, FileSource] = {},
        *,
        links: bool = True,
    ) -> None:
        """`sources` maps cursors to sources, and `files` maps marks to files; both may grow. `links`: whether marks of
        pages are replaced by links."""
        self._sources = sources
        self._files = files
        self._links = links
        self._held = ""
        self._last = " "
        self._owes_space = False
        """Whether a space before a mark was removed. It is restored if a word follows."""

    def feed(self, text: str) -> list[Piece]:
        """Read `text`. Returns the pieces that it completes."""
        leaves_out = bool(self._files) or not self._links
        if not self._held and not leaves_out and "【" not in text:
            if text:
                self._last = text[-1]
            return [text] if text else []
        text, self._held = self._held + text, ""
        plain: list[str] = []
        pieces: list[Piece] = []
        pos = 0
        while (start := text.find("【", pos)) >= 0:
            plain.append(text[pos:start])
            if mark := _FILE_MARK.match(text, start):
                pos = mark.end()
                file = self._files.get(mark[1])
                if file is None:
                    plain.append(mark[0])
                    continue
                pieces += (self._without_trailing_space(plain), FileMark(file))
                plain = []
                continue
            if mark := _MARK.match(text, start):
                pos = mark.end()
                lines = _LINES.fullmatch(mark[2])
                source = None if lines is None else self._cited(int(mark[1]), int(lines[1]))
                if lines is None or source is None:
                    plain.append(mark[0])
                    continue
                named = int(lines[1]), int(lines[2] or lines[1])
                if not self._links:
                    pieces += (self._without_trailing_space(plain), Citation(source, "", named))
                    plain = []
                    continue
                before = self._spaced("".join(plain))
                if (before[-1:] or self._last) not in _NO_SPACE_AFTER:
                    before += " "
                pieces += (before, Citation(source, link_to(source.url), named))
                self._last, self._owes_space = ")", False
                plain = []
                continue
            if _BEGUN.fullmatch(text, start):
                pos, self._held = len(text), text[start:]
                break
            plain.append("【")
            pos = start + 1
        plain.append(text[pos:])
        rest = "".join(plain)
        if leaves_out and rest.endswith(" "):
            rest, self._held = rest[:-1], f" {self._held}"
        if rest := self._spaced(rest):
            pieces.append(rest)
            self._last = rest[-1]
        return [piece for piece in pieces if piece]

    def _without_trailing_space(self, plain: Sequence[str]) -> str:
        """Return the text before a removed mark, without its trailing space."""
        before = self._spaced("".join(plain))
        if before.endswith(" "):
            before, self._owes_space = before[:-1], True
        self._last = before[-1:] or self._last
        return before

    def _spaced(self, text: str) -> str:
        """Return `text`, preceded by the removed space if it needs one."""
        if not text or not self._owes_space:
            return text
        self._owes_space = False
        return f" {text}" if text[0].isalnum() or text[0] in _OPENING else text

    def _cited(self, cursor: int, line: int) -> Source | None:
        """Return the source of a mark. A mark of several lines refers to the source of its first line."""
        for source in self._sources.get(cursor, ()):
            if source.lines is None or source.lines[0] <= line <= source.lines[1]:
                return source
        return None

    def finish(self) -> list[Piece]:
        """Return the pieces held back at the end of the text. The reader can then be used for another text."""
        held = self._spaced(self._held)
        self._held, self._last, self._owes_space = "", " ", False
        return [held] if held else []


def link_to(url: str) -> str:
    """Return a URL as a Markdown link in parentheses, labelled with its host."""
    try:
        host = (urlsplit(url).hostname or url).removeprefix("www.")
    except ValueError:
        host = url
    safe = quote(url, safe=";/?:@&=+$,#!~*'%-._")
    return f"([{host}]({safe}))"


def by_cursor(sources: Iterable[Source]) -> dict[int, list[Source]]:
    """Group sources by cursor, in their order."""
    found: dict[int, list[Source]] = {}
    for source in sources:
        found.setdefault(source.cursor, []).append(source)
    return found


def by_mark(files: Iterable[FileSource]) -> dict[str, FileSource]:
    """Index files by mark."""
    return {file.mark: file for file in files}
