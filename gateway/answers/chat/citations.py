"""Citations in a choice: replacing their marks in the text, and writing annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import quote

from gateway.answers.chat.assembler import ChoiceWriter
from gateway.base.deltas import CitedSource
from gateway.items.citations import (
    Citation,
    CitationReader,
    FileMark,
    Piece,
    by_cursor,
    by_mark,
)
from gateway.items.sandbox_links import SandboxLink, SandboxLinkReader, by_path
from gateway.plugins.protocols import (
    ContainerFileSource,
    FileSource,
    Source,
    TokenLogprob,
    ToolResult,
)
from gateway.wire.chat import AnnotatedUrl, FinishReason, UrlAnnotation


class AnnotatedWriter(ChoiceWriter, Protocol):
    """Writes a choice whose text can have annotations."""

    def annotate(self, annotations: Sequence[UrlAnnotation]) -> bytes:
        """Write the annotations of the whole text. Called at most once, before `finish`."""
        ...


class CitedWriter:
    """Writes a choice with citations; see `gateway.answers.chat.assembler.ChoiceWriter` and `gateway.items.citations`.

    Marks of pages become links, which the annotations cover. Indices count the characters (Unicode code points) of the
    whole content; `end_index` is exclusive. Annotations are written together at the end, as the accumulators of the
    official clients expect.

    Chat Completions has only annotations of the type `url_citation`, and clients reject others. A file is therefore
    cited by the URL path of its contents in this API. The annotation of an uploaded file is an empty range at the
    position of the removed mark; the annotation of a container file covers the target of its `sandbox:` link.
    """

    def __init__(self, writer: AnnotatedWriter) -> None:
        self._writer = writer
        self._sources: dict[int, list[Source]] = {}
        self._files: dict[str, FileSource] = {}
        self._container_files: dict[str, ContainerFileSource] = {}
        self._reader = CitationReader(self._sources, self._files)
        self._links = SandboxLinkReader(self._container_files)
        self._waiting: list[TokenLogprob] = []
        self._length = 0
        self._cited_from = 0
        self._annotations: list[UrlAnnotation] = []

    def called(self, result: ToolResult) -> bytes:
        """Register the result of a call. Its sources can be cited afterwards. Returns the text that was held back."""
        out = self._held()
        self._sources.update(by_cursor(result.sources))
        self._files.update(by_mark(result.files))
        if result.container_files:
            self._container_files.update(by_path(result.container_files))
            # A reader does not notice files that are added later.
            self._links = SandboxLinkReader(self._container_files)
        return out

    def role(self) -> bytes:
        return self._writer.role()

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        self._waiting += logprobs
        return self._encoded(self._reader.feed(text))

    def begin_citation(self) -> bytes:
        out = self._held()
        self._cited_from = self._length
        return out

    def end_citation(self, sources: Sequence[CitedSource]) -> bytes:
        out = self._held()
        if length := self._length - self._cited_from:
            for source in sources:
                self._annotate(source.url, source.title, length)
        return out

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
        if self._waiting:  # tokens of a mark at the end of the text
            out += self._write("")
        if self._annotations:
            out += self._writer.annotate(self._annotations)
        return out + self._writer.finish(reason, stop_reason)

    def _held(self) -> bytes:
        """Return the text that was held back because it could have become a mark or a link."""
        return self._encoded(self._reader.finish()) + self._linked(self._links.finish())

    def _encoded(self, pieces: Sequence[Piece]) -> bytes:
        out = b""
        for piece in pieces:
            match piece:
                case str():
                    out += self._linked(self._links.feed(piece))
                case Citation(source=source, link=link):
                    out += self._linked(self._links.finish()) + self._write(link)
                    self._annotate(source.url, source.title, len(link))
                case FileMark(source=file):
                    out += self._linked(self._links.finish())
                    self._annotate(
                        f"/v1/files/{quote(file.file_id, safe='')}/content", file.filename
                    )
        return out

    def _linked(self, pieces: Sequence[str | SandboxLink]) -> bytes:
        out = b""
        for piece in pieces:
            if isinstance(piece, str):
                out += self._write(piece)
                continue
            out += self._write(piece.text)
            file = piece.source
            container, name = quote(file.container_id, safe=""), quote(file.file_id, safe="")
            url = f"/v1/containers/{container}/files/{name}/content"
            self._annotate(url, file.path.rpartition("/")[2], len(piece.text))
        return out

    def _annotate(self, url: str, title: str, length: int = 0) -> None:
        """Add an annotation that covers the last `length` characters."""
        start, end = self._length - length, self._length
        cited = AnnotatedUrl(url=url, title=title, start_index=start, end_index=end)
        self._annotations.append(UrlAnnotation(url_citation=cited))

    def _write(self, text: str) -> bytes:
        waiting, self._waiting = self._waiting, []
        self._length += len(text)
        return self._writer.text(text, waiting)
