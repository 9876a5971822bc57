"""A message of a model that may cite what its tools have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gateway.protocols import ContainerFileSource, FileSource, Source, TokenLogprob
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.responses.open_item.message import OpenMessage
from gateway.tools.citations import Citation, CitationReader, FileCitation, Piece
from gateway.tools.sandbox_links import SandboxLink, SandboxLinkReader
from gateway.wire import content, events, items


class OpenCitedMessage(OpenMessage):
    """An `OpenMessage` that turns citation marks into annotations, those of pages with links (see `gateway.tools.citations`), and
    tells which of its links lead to files of containers (see `gateway.tools.sandbox_links`).

    Each `output_text.annotation.added` follows the delta that completes the text which it is about. Indices count the
    characters (Unicode code points) of the part's text, `end_index` exclusive; a file's `index` is the length of the text
    before its mark. Log probabilities of a mark's tokens come with the text that stands for it, else with the text that
    follows, and where none does, with the end of the part.
    """

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        phase: Literal["commentary", "final_answer"] | None,
        sources: Mapping[int, Sequence[Source]],
        files: Mapping[str, FileSource],
        container_files: Mapping[str, ContainerFileSource] = {},
    ) -> None:
        super().__init__(item_id, output_index, sequence, phase)
        self._reader = CitationReader(sources, files)
        self._links = SandboxLinkReader(container_files)
        self._waiting: list[TokenLogprob] = []
        self._length = 0

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob], out: Out) -> None:
        self._waiting += logprobs
        self._tell(self._reader.feed(text), out)

    def _tell(self, pieces: Sequence[Piece], out: Out) -> None:
        for piece in pieces:
            match piece:
                case str():
                    self._write_linked(self._links.feed(piece), out)
                case Citation(source=source, link=link):
                    self._write_linked(self._links.finish(), out)
                    self._write(link, out)
                    cited = content.UrlCitation(
                        url=source.url,
                        title=source.title,
                        start_index=self._length - len(link),
                        end_index=self._length,
                    )
                    self._annotate(cited, out)
                case FileCitation(source=file):
                    self._write_linked(self._links.finish(), out)
                    if self._kind != "output_text":
                        self._open_part("output_text", out)
                    told = content.FileCitation(
                        file_id=file.file_id, filename=file.filename, index=self._length
                    )
                    self._annotate(told, out)

    def _write_linked(self, pieces: Sequence[str | SandboxLink], out: Out) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self._write(piece, out)
                continue
            self._write(piece.text, out)
            file = piece.source
            told = content.ContainerFileCitation(
                container_id=file.container_id,
                file_id=file.file_id,
                filename=file.path.rpartition("/")[2],
                start_index=self._length - len(piece.text),
                end_index=self._length,
            )
            self._annotate(told, out)

    def _tell_held(self, out: Out) -> None:
        """What was held back, as it may have become a mark or a link."""
        self._tell(self._reader.finish(), out)
        self._write_linked(self._links.finish(), out)

    def _write(self, text: str, out: Out) -> None:
        waiting, self._waiting = self._waiting, []
        super().write_text(text, waiting, out)
        self._length += len(text)

    def _annotate(self, annotation: content.Annotation, out: Out) -> None:
        out.append(
            events.OutputTextAnnotationAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                annotation_index=len(self._annotations),
                annotation=annotation,
            )
        )
        self._annotations.append(annotation)

    def write_refusal(self, text: str, out: Out) -> None:
        self._tell_held(out)
        super().write_refusal(text, out)

    def close(self, status: EndStatus, out: Out) -> items.Message:
        self._tell_held(out)
        return super().close(status, out)

    def _open_part(self, kind: Literal["output_text", "refusal"], out: Out) -> None:
        super()._open_part(kind, out)
        self._length = 0

    def _close_part(self, out: Out) -> None:
        if self._kind == "output_text":
            self._logprobs += map(content.logprob, self._waiting)
            self._waiting = []
        super()._close_part(out)
