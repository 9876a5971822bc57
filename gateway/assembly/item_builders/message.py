"""Builder of assistant messages."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Literal

from msgspec import UNSET

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ItemBuilder
from gateway.assembly.logprobs import logprob
from gateway.deltas import CitedSource
from gateway.protocols import TokenLogprob
from gateway.wire import content, events, items
from gateway.wire.delta_frame import DeltaFrame, delta_frame


class MessageBuilder(ItemBuilder):
    """Builds an assistant message with one or more parts."""

    def __init__(self, item_id: str, phase: Literal["commentary", "final_answer"] | None) -> None:
        self.id = item_id
        self._phase = phase
        self._parts: list[content.OutputText | content.Refusal] = []
        self._kind: Literal["output_text", "refusal"] | None = None
        self._text = StringIO()  # pieces kept in a list take ten times as much
        self._logprobs: list[content.Logprob] = []
        self._annotations: list[content.Annotation] = []
        self._cited_from = 0
        """Where the latest cited span of the open part begins."""

    def _item(self, status: Literal["in_progress", "completed", "incomplete"]) -> items.Message:
        return items.Message(
            id=self.id,
            status=status,
            role="assistant",
            content=list(self._parts),
            phase=self._phase or UNSET,
        )

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        if self._kind != "output_text":
            self._open_part("output_text")
        self._text.write(text)
        if logprobs:
            self._logprobs += map(logprob, logprobs)

    def begin_citation(self) -> None:
        """Begin a cited span with the next text."""
        self._cited_from = self._text.tell() if self._kind == "output_text" else 0

    def end_citation(self, sources: Sequence[CitedSource]) -> None:
        """End the cited span, and annotate it with each of its sources."""
        start, end = self._cited_from, self._text.tell()
        if self._kind != "output_text" or start == end:
            return
        for source in sources:
            cited = content.UrlCitation(
                url=source.url, title=source.title, start_index=start, end_index=end
            )
            self._annotate(cited)

    def _annotate(self, annotation: content.Annotation) -> None:
        self._annotations.append(annotation)

    def write_refusal(self, text: str) -> None:
        if self._kind != "refusal":
            self._open_part("refusal")
        self._text.write(text)

    def close(self, status: EndStatus) -> items.Message:
        self._close_part()
        return self._item(status)

    def _open_part(self, kind: Literal["output_text", "refusal"]) -> None:
        self._close_part()
        self._kind = kind

    def _close_part(self) -> content.OutputText | content.Refusal | None:
        """Finish the open part. Returns it, or None if there is none."""
        if self._kind is None:
            return None
        text = self._text.getvalue()
        part: content.OutputText | content.Refusal
        if self._kind == "output_text":
            part = content.OutputText(
                text=text, annotations=self._annotations, logprobs=self._logprobs
            )
        else:
            part = content.Refusal(refusal=text)
        self._parts.append(part)
        self._kind, self._text = None, StringIO()
        self._logprobs, self._annotations = [], []
        return part


class AnnouncedMessage(Announced, MessageBuilder):
    """Announces a message, its parts, its text and its annotations. Each annotation follows the delta that completes the text
    it refers to."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("in_progress"))

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        if self._kind == "output_text" and not logprobs:
            self._text.write(text)  # the usual case
        else:
            super().write_text(text, logprobs)
        writer = self.events
        writer.out.append(
            events.OutputTextDelta(
                sequence_number=writer.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
                logprobs=[*map(logprob, logprobs)] if logprobs else [],
            )
        )

    def open_text(self) -> tuple[StringIO, DeltaFrame] | None:
        """The text of the open part, and the frame of the events for more of it; None if no text part is open. Both are valid
        until anything else is written."""
        if self._kind != "output_text":
            return None
        sample = events.OutputTextDelta(
            sequence_number=0,
            item_id=self.id,
            output_index=self.output_index,
            content_index=len(self._parts),
            delta="",
            logprobs=[],
        )
        return self._text, delta_frame(sample)

    def _annotate(self, annotation: content.Annotation) -> None:
        self.events.out.append(
            events.OutputTextAnnotationAdded(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                annotation_index=len(self._annotations),
                annotation=annotation,
            )
        )
        super()._annotate(annotation)

    def write_refusal(self, text: str) -> None:
        super().write_refusal(text)
        self.events.out.append(
            events.RefusalDelta(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
            )
        )

    def close(self, status: EndStatus) -> items.Message:
        item = super().close(status)
        self._done(item)
        return item

    def _open_part(self, kind: Literal["output_text", "refusal"]) -> None:
        super()._open_part(kind)
        empty = (
            content.OutputText(text="") if kind == "output_text" else content.Refusal(refusal="")
        )
        self.events.out.append(
            events.ContentPartAdded(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                part=empty,
            )
        )

    def _close_part(self) -> content.OutputText | content.Refusal | None:
        index = len(self._parts)
        part = super()._close_part()
        if part is None:
            return None
        if isinstance(part, content.OutputText):
            self.events.out.append(
                events.OutputTextDone(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    text=part.text,
                    logprobs=[*part.logprobs],
                )
            )
        else:
            self.events.out.append(
                events.RefusalDone(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    refusal=part.refusal,
                )
            )
        self.events.out.append(
            events.ContentPartDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=index,
                part=part,
            )
        )
        return part
