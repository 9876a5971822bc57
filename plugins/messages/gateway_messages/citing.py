"""Citation marks in this API: left out of the text, and told as citations of pages.

The API has no citations of uploaded files: their marks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.protocols import CallRecord, FileSource, Source
from gateway.tools.citations import (
    Citation,
    CitationReader,
    FileCitation,
    Piece,
    by_cursor,
    by_mark,
)
from gateway_messages.answer import WebCitation

LONGEST_QUOTE = 150
"""Characters of the source that a citation shows, as the API has it."""

_NUMBERED = re.compile(r"^L(\d{1,9}): (.*)$", re.MULTILINE)


class Citing:
    """Reads an answer's text for marks of what the tools have found."""

    def __init__(self, known: Iterable[CallRecord]) -> None:
        """`known` are calls of earlier answers."""
        self._sources: dict[int, list[Source]] = {}
        self._files: dict[str, FileSource] = {}
        self._lines: dict[tuple[int, int], str] = {}
        """What the tools have shown, by cursor and line."""
        self._reader = CitationReader(self._sources, self._files, links=False)
        for call in known:
            self.learn(call.result, call.sources, call.files)

    def learn(self, text: str, sources: Sequence[Source], files: Sequence[FileSource]) -> None:
        """A tool has said `text`, which lets the model cite `sources` and `files`."""
        found = by_cursor(sources)
        self._sources.update(found)
        self._files.update(by_mark(files))
        if len(found) == 1:  # otherwise nobody knows whose lines they are
            [cursor] = found
            for line in _NUMBERED.finditer(text):
                self._lines[cursor, int(line[1])] = line[2]

    def read(self, text: str) -> list[str | WebCitation]:
        """What `text` completes."""
        return self._told(self._reader.feed(text))

    def rest(self) -> list[str | WebCitation]:
        """What was held when the text ended."""
        return self._told(self._reader.finish())

    def _told(self, pieces: Sequence[Piece]) -> list[str | WebCitation]:
        told: list[str | WebCitation] = []
        for piece in pieces:
            match piece:
                case str():
                    told.append(piece)
                case Citation():
                    told.append(self._citation(piece))
                case FileCitation():
                    pass
        return told

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
