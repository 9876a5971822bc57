"""A message of a model that may cite what its tools have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gateway.citations import CitationReader, Piece
from gateway.open_items import EndStatus, NextSequence, OpenMessage, Out
from gateway.protocols import Source, TokenLogprob
from gateway.wire import content, events, items


class OpenCitedMessage(OpenMessage):
    """An `OpenMessage` that turns citation marks into links with annotations (see `gateway.citations`).

    Each `output_text.annotation.added` follows the delta that completes the link which it is about. Indices count the
    characters (Unicode code points) of the part's text, `end_index` exclusive. Log probabilities of a mark's tokens come
    with the text that stands for it.
    """

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        phase: Literal["commentary", "final_answer"] | None,
        sources: Mapping[int, Sequence[Source]],
    ) -> None:
        super().__init__(item_id, output_index, sequence, phase)
        self._reader = CitationReader(sources)
        self._waiting: list[TokenLogprob] = []
        self._length = 0

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob], out: Out) -> None:
        self._waiting += logprobs
        self._tell(self._reader.feed(text), out)

    def _tell(self, pieces: Sequence[Piece], out: Out) -> None:
        for piece in pieces:
            text = piece if isinstance(piece, str) else piece.link
            waiting, self._waiting = self._waiting, []
            super().write_text(text, waiting, out)
            start = self._length
            self._length += len(text)
            if not isinstance(piece, str):
                self._annotate(
                    content.UrlCitation(
                        url=piece.source.url,
                        title=piece.source.title,
                        start_index=start,
                        end_index=self._length,
                    ),
                    out,
                )

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
        self._tell(self._reader.finish(), out)
        super().write_refusal(text, out)

    def close(self, status: EndStatus, out: Out) -> items.Message:
        self._tell(self._reader.finish(), out)
        return super().close(status, out)

    def _open_part(self, kind: Literal["output_text", "refusal"], out: Out) -> None:
        super()._open_part(kind, out)
        self._length = 0
