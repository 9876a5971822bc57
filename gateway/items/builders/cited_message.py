"""Builder of messages that may contain citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gateway.base.deltas import CitedSource
from gateway.items.builders.item import EndStatus
from gateway.items.builders.message import MessageBuilder
from gateway.items.citations import Citation, CitationReader, FileMark, Piece
from gateway.items.logprobs import logprob
from gateway.items.sandbox_links import SandboxLink, SandboxLinkReader
from gateway.plugins.protocols import ContainerFileSource, FileSource, Source, TokenLogprob
from gateway.wire import content, items


class CitedMessageBuilder(MessageBuilder):
    """A `MessageBuilder` that turns citation marks into annotations (see `gateway.items.citations`), and annotates
    links to container files (see `gateway.items.sandbox_links`).

    Indices count the characters (Unicode code points) of the part's text; `end_index` is exclusive; a file's `index` is
    the length of the text before its mark. The log probabilities of a mark's tokens are sent with the text that
    replaces the mark, otherwise with the text that follows, or at the end of the part.
    """

    def __init__(
        self,
        item_id: str,
        phase: Literal["commentary", "final_answer"] | None,
        sources: Mapping[int, Sequence[Source]],
        files: Mapping[str, FileSource],
        container_files: Mapping[str, ContainerFileSource] = {},
    ) -> None:
        super().__init__(item_id, phase)
        self._reader = CitationReader(sources, files)
        self._links = SandboxLinkReader(container_files)
        self._waiting: list[TokenLogprob] = []
        self._length = 0

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        self._waiting += logprobs
        self._write_pieces(self._reader.feed(text))

    def _write_pieces(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case str():
                    self._write_linked(self._links.feed(piece))
                case Citation(source=source, link=link):
                    self._write_linked(self._links.finish())
                    self._write(link)
                    cited = content.UrlCitation(
                        url=source.url,
                        title=source.title,
                        start_index=self._length - len(link),
                        end_index=self._length,
                    )
                    self._annotate(cited)
                case FileMark(source=file):
                    self._write_linked(self._links.finish())
                    if self._kind != "output_text":
                        self._open_part("output_text")
                    citation = content.FileCitation(
                        file_id=file.file_id, filename=file.filename, index=self._length
                    )
                    self._annotate(citation)

    def _write_linked(self, pieces: Sequence[str | SandboxLink]) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self._write(piece)
                continue
            self._write(piece.text)
            file = piece.source
            citation = content.ContainerFileCitation(
                container_id=file.container_id,
                file_id=file.file_id,
                filename=file.path.rpartition("/")[2],
                start_index=self._length - len(piece.text),
                end_index=self._length,
            )
            self._annotate(citation)

    def _write_held(self) -> None:
        """Write text that was held back as a possible mark or link."""
        self._write_pieces(self._reader.finish())
        self._write_linked(self._links.finish())

    def _write(self, text: str) -> None:
        waiting, self._waiting = self._waiting, []
        super().write_text(text, waiting)
        self._length += len(text)

    def begin_citation(self) -> None:
        self._write_held()
        super().begin_citation()

    def end_citation(self, sources: Sequence[CitedSource]) -> None:
        self._write_held()
        super().end_citation(sources)

    def write_refusal(self, text: str) -> None:
        self._write_held()
        super().write_refusal(text)

    def close(self, status: EndStatus) -> items.Message:
        self._write_held()
        return super().close(status)

    def _open_part(self, kind: Literal["output_text", "refusal"]) -> None:
        super()._open_part(kind)
        self._length = 0

    def _close_part(self) -> None:
        if self._kind == "output_text":
            self._logprobs += map(logprob, self._waiting)
            self._waiting = []
        super()._close_part()
