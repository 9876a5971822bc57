"""Converts citation marks to this API's citations of web pages, and removes them from the text.

The API has no citations of uploaded files: their marks are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.sdk import CallRecord, FileSource, Source
from gateway.sdk.tools import Citation, CitationReader, FileMark, Piece, by_cursor, by_mark
from gateway_messages.answer import WebCitation

LONGEST_QUOTE = 150
"""Maximum characters of the source that a citation quotes, as in the API."""

_NUMBERED = re.compile(r"^L(\d{1,9}): (.*)$", re.MULTILINE)


class CitationWriter:
    """Finds citation marks in an answer's text."""

    def __init__(self, known: Iterable[CallRecord]) -> None:
        """`known` are calls of earlier answers."""
        self._sources: dict[int, list[Source]] = {}
        self._files: dict[str, FileSource] = {}
        self._lines: dict[tuple[int, int], str] = {}
        """Lines of tool results, by cursor and line number."""
        self._reader = CitationReader(self._sources, self._files, links=False)
        for call in known:
            self.add_result(call.result, call.sources, call.files)

    def add_result(self, text: str, sources: Sequence[Source], files: Sequence[FileSource]) -> None:
        """Record a tool result `text`, after which the model may cite `sources` and `files`."""
        found = by_cursor(sources)
        self._sources.update(found)
        self._files.update(by_mark(files))
        if len(found) == 1:  # otherwise the lines cannot be attributed
            [cursor] = found
            for line in _NUMBERED.finditer(text):
                self._lines[cursor, int(line[1])] = line[2]

    def read(self, text: str) -> list[str | WebCitation]:
        """Read a piece of the text. Returns the text and citations that are complete."""
        return self._converted(self._reader.feed(text))

    def rest(self) -> list[str | WebCitation]:
        """The text held back at the end."""
        return self._converted(self._reader.finish())

    def _converted(self, pieces: Sequence[Piece]) -> list[str | WebCitation]:
        converted: list[str | WebCitation] = []
        for piece in pieces:
            match piece:
                case str():
                    converted.append(piece)
                case Citation():
                    converted.append(self._citation(piece))
                case FileMark():
                    pass
        return converted

    def _citation(self, cited: Citation) -> WebCitation:
        source = cited.source
        first, last = cited.lines
        last = min(last, first + LONGEST_QUOTE)
        lines = [self._lines.get((source.cursor, line), "") for line in range(first, last + 1)]
        quoted = " ".join(line for line in lines if line) or source.title
        return WebCitation(
            cited_text=quoted[:LONGEST_QUOTE],
            url=source.url,
            title=source.title or None,
            encrypted_index=f"{source.cursor}:{first}-{last}",
        )
