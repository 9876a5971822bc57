"""Citation marks in a choice: their removal from the text, and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.assembly.citations import (
    Citation,
    CitationReader,
    FileCitation,
    Piece,
    by_cursor,
    by_mark,
)
from gateway.chat.assembler import ChoiceWriter
from gateway.protocols import FileSource, Source, TokenLogprob, ToolResult
from gateway.wire.chat import AnnotatedUrl, FinishReason, UrlAnnotation


class AnnotatedWriter(ChoiceWriter, Protocol):
    """Writes a choice whose text can have annotations."""

    def annotate(self, annotations: Sequence[UrlAnnotation]) -> bytes:
        """Add the annotations of the whole text. Called at most once, before `finish`."""
        ...


class CitedWriter:
    """Writes a choice with citations; see `gateway.chat.assembler.ChoiceWriter` and `gateway.assembly.citations`.

    Marks of pages become links, which the annotations cover. Indices count the characters (Unicode code points) of the
    whole content; `end_index` is exclusive. Chat Completions has no annotation for files, so their marks are removed.
    Annotations are written together at the end, as the accumulators of the official clients expect.
    """

    def __init__(self, writer: AnnotatedWriter) -> None:
        self._writer = writer
        self._sources: dict[int, list[Source]] = {}
        self._files: dict[str, FileSource] = {}
        self._reader = CitationReader(self._sources, self._files)
        self._waiting: list[TokenLogprob] = []
        self._length = 0
        self._annotations: list[UrlAnnotation] = []

    def called(self, result: ToolResult) -> None:
        """Register a result, whose sources can be cited afterwards."""
        self._sources.update(by_cursor(result.sources))
        self._files.update(by_mark(result.files))

    def role(self) -> bytes:
        return self._writer.role()

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        self._waiting += logprobs
        return self._encoded(self._reader.feed(text))

    def reasoning(self, text: str) -> bytes:
        return self._held() + self._writer.reasoning(text)

    def refusal(self, text: str) -> bytes:
        return self._held() + self._writer.refusal(text)

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        return self._held() + self._writer.call(index, call_id, name, custom=custom)

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes:
        return self._writer.call_input(index, text, custom=custom)

    def finish(self, reason: FinishReason, stop_reason: str | int | None) -> bytes:
        out = self._held()
        if self._waiting:  # of a mark at the end of the text
            out += self._write("")
        if self._annotations:
            out += self._writer.annotate(self._annotations)
        return out + self._writer.finish(reason, stop_reason)

    def _held(self) -> bytes:
        """Text held back because it could have become a mark."""
        return self._encoded(self._reader.finish())

    def _encoded(self, pieces: Sequence[Piece]) -> bytes:
        out = b""
        for piece in pieces:
            match piece:
                case str():
                    out += self._write(piece)
                case Citation(source=source, link=link):
                    out += self._write(link)
                    cited = AnnotatedUrl(
                        url=source.url,
                        title=source.title,
                        start_index=self._length - len(link),
                        end_index=self._length,
                    )
                    self._annotations.append(UrlAnnotation(url_citation=cited))
                case FileCitation():
                    pass
        return out

    def _write(self, text: str) -> bytes:
        waiting, self._waiting = self._waiting, []
        self._length += len(text)
        return self._writer.text(text, waiting)
