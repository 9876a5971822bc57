"""Builders of reasoning items."""

from __future__ import annotations

from io import StringIO

from msgspec import UNSET

from gateway.access.sealing import SealReasoning
from gateway.items.builders.events import EventCollector
from gateway.items.builders.item import EndStatus, ItemBuilder
from gateway.wire import content, events, items


class ReasoningBuilder(ItemBuilder):
    """Builds a reasoning item with one `reasoning_text` part and no summary."""

    def __init__(self, item_id: str, seal: SealReasoning | None) -> None:
        self.id = item_id
        self.encrypted: str | None = None
        """Reasoning that the engine itself encrypted, if any."""
        self._seal = seal
        self._text = StringIO()

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if (collector := self.events) is not None:
            begun = items.Reasoning(id=self.id, summary=[], status="in_progress")
            collector.added(begun, output_index)
            collector.out.append(
                events.ContentPartAdded(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=output_index,
                    content_index=0,
                    part=content.ReasoningText(text=""),
                )
            )

    def write(self, text: str) -> None:
        self._text.write(text)
        if (collector := self.events) is not None:
            collector.out.append(
                events.ReasoningTextDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=0,
                    delta=text,
                )
            )

    def close(self, status: EndStatus) -> items.Reasoning:
        text = self._text.getvalue()
        part = content.ReasoningText(text=text)
        item = items.Reasoning(
            id=self.id,
            summary=self._summary(text),
            content=[part],
            encrypted_content=(
                UNSET if self._seal is None else self._seal(text, encrypted=self.encrypted)
            ),
            status=status,
        )
        if self.events is not None:
            self._append_ends(self.events, item, part)
            self.events.done(item, self.output_index)
        return item

    def _summary(self, text: str) -> list[content.SummaryText]:
        return []

    def _append_ends(
        self, collector: EventCollector, item: items.Reasoning, part: content.ReasoningText
    ) -> None:
        """Append the events that end the item's parts."""
        collector.out += (
            events.ReasoningTextDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                text=part.text,
            ),
            events.ContentPartDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=part,
            ),
        )


class SummarizedReasoningBuilder(ReasoningBuilder):
    """A `ReasoningBuilder` whose summary is the whole text, in one part. No separate summary is generated.

    Each piece is sent first as text, then as summary. The summary part is opened after the text part, and closed after
    it.
    """

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if (collector := self.events) is not None:
            collector.out.append(
                events.ReasoningSummaryPartAdded(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=output_index,
                    summary_index=0,
                    part=content.SummaryText(text=""),
                )
            )

    def write(self, text: str) -> None:
        super().write(text)
        if (collector := self.events) is not None:
            collector.out.append(
                events.ReasoningSummaryTextDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    summary_index=0,
                    delta=text,
                )
            )

    def _summary(self, text: str) -> list[content.SummaryText]:
        return [content.SummaryText(text=text)]

    def _append_ends(
        self, collector: EventCollector, item: items.Reasoning, part: content.ReasoningText
    ) -> None:
        super()._append_ends(collector, item, part)
        [summary] = item.summary
        collector.out += (
            events.ReasoningSummaryTextDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                text=summary.text,
            ),
            events.ReasoningSummaryPartDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                part=summary,
                status="incomplete" if item.status == "incomplete" else UNSET,
            ),
        )
