"""Builder of assistant messages."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Literal

from msgspec import UNSET

from gateway.base.deltas import CitedSource
from gateway.items.builders.events import EventCollector
from gateway.items.builders.item import EndStatus, ItemBuilder
from gateway.items.logprobs import logprob
from gateway.plugins.protocols import TokenLogprob
from gateway.wire import content, events, items


class MessageBuilder(ItemBuilder):
    """Builds an assistant message with one or more parts.

    The event of an annotation follows the delta that completes the annotated text.
    """

    def __init__(self, item_id: str, phase: Literal["commentary", "final_answer"] | None) -> None:
        self.id = item_id
        self._phase = phase
        self._parts: list[content.OutputText | content.Refusal] = []
        self._kind: Literal["output_text", "refusal"] | None = None
        self._text = StringIO()  # pieces kept in a list take ten times as much
        self._logprobs: list[content.Logprob] = []
        self._annotations: list[content.Annotation] = []
        self._cited_from = 0
        """Start of the latest cited span in the open part."""

    def _item(self, status: Literal["in_progress", "completed", "incomplete"]) -> items.Message:
        return items.Message(
            id=self.id,
            status=status,
            role="assistant",
            content=list(self._parts),
            phase=self._phase or UNSET,
        )

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("in_progress"), output_index)

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        if self._kind != "output_text":
            self._open_part("output_text")
        self._text.write(text)
        shown = [*map(logprob, logprobs)] if logprobs else []
        if shown:
            self._logprobs += shown
        if (collector := self.events) is not None:
            collector.out.append(
                events.OutputTextDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=len(self._parts),
                    delta=text,
                    logprobs=shown,
                )
            )

    def begin_citation(self) -> None:
        """Begin a cited span. It starts with the next text."""
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
        if (collector := self.events) is not None:
            collector.out.append(
                events.OutputTextAnnotationAdded(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=len(self._parts),
                    annotation_index=len(self._annotations),
                    annotation=annotation,
                )
            )
        self._annotations.append(annotation)

    def write_refusal(self, text: str) -> None:
        if self._kind != "refusal":
            self._open_part("refusal")
        self._text.write(text)
        if (collector := self.events) is not None:
            collector.out.append(
                events.RefusalDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=len(self._parts),
                    delta=text,
                )
            )

    def close(self, status: EndStatus) -> items.Message:
        self._close_part()
        item = self._item(status)
        self._done(item)
        return item

    def _open_part(self, kind: Literal["output_text", "refusal"]) -> None:
        self._close_part()
        self._kind = kind
        if (collector := self.events) is not None:
            empty = (
                content.OutputText(text="")
                if kind == "output_text"
                else content.Refusal(refusal="")
            )
            collector.out.append(
                events.ContentPartAdded(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=len(self._parts),
                    part=empty,
                )
            )

    def _close_part(self) -> None:
        """Finish the open part, if there is one."""
        if self._kind is None:
            return
        text = self._text.getvalue()
        part: content.OutputText | content.Refusal
        if self._kind == "output_text":
            part = content.OutputText(
                text=text, annotations=self._annotations, logprobs=self._logprobs
            )
        else:
            part = content.Refusal(refusal=text)
        if self.events is not None:
            self._append_ends(self.events, part)
        self._parts.append(part)
        self._kind, self._text = None, StringIO()
        self._logprobs, self._annotations = [], []

    def _append_ends(
        self, collector: EventCollector, part: content.OutputText | content.Refusal
    ) -> None:
        """Append the events that end the open part."""
        index = len(self._parts)
        if isinstance(part, content.OutputText):
            collector.out.append(
                events.OutputTextDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    text=part.text,
                    logprobs=[*part.logprobs],
                )
            )
        else:
            collector.out.append(
                events.RefusalDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    refusal=part.refusal,
                )
            )
        collector.out.append(
            events.ContentPartDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=index,
                part=part,
            )
        )
