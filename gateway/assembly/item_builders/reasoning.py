"""Builders of reasoning items."""

from __future__ import annotations

from io import StringIO

from msgspec import UNSET

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ItemBuilder
from gateway.runtime.sealing import SealReasoning
from gateway.wire import content, events, items
from gateway.wire.delta_frame import DeltaFrame, delta_frame


class ReasoningBuilder(ItemBuilder):
    """Builds a reasoning item with one `reasoning_text` part and no summary."""

    def __init__(self, item_id: str, seal: SealReasoning | None) -> None:
        self.id = item_id
        self.encrypted: str | None = None
        """What the engine encrypted itself."""
        self._seal = seal
        self._text = StringIO()

    def write(self, text: str) -> None:
        self._text.write(text)

    def close(self, status: EndStatus) -> items.Reasoning:
        text = self._text.getvalue()
        return items.Reasoning(
            id=self.id,
            summary=self._summary(text),
            content=[content.ReasoningText(text=text)],
            encrypted_content=(
                UNSET if self._seal is None else self._seal(text, encrypted=self.encrypted)
            ),
            status=status,
        )

    def _summary(self, text: str) -> list[content.SummaryText]:
        return []


class SummarizedReasoningBuilder(ReasoningBuilder):
    """A `ReasoningBuilder` whose summary is the whole text, in one part. No separate summary is generated."""

    def _summary(self, text: str) -> list[content.SummaryText]:
        return [content.SummaryText(text=text)]


class AnnouncedReasoning(Announced, ReasoningBuilder):
    """Announces a reasoning item and its text."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(items.Reasoning(id=self.id, summary=[], status="in_progress"))
        self.events.out.append(
            events.ContentPartAdded(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=output_index,
                content_index=0,
                part=content.ReasoningText(text=""),
            )
        )

    def write(self, text: str) -> None:
        self._text.write(text)
        writer = self.events
        writer.out.append(
            events.ReasoningTextDelta(
                sequence_number=writer.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                delta=text,
            )
        )

    def open_text(self) -> tuple[StringIO, DeltaFrame]:
        """The text, and the frame of the events for more of it. Valid until the item is closed."""
        sample = events.ReasoningTextDelta(
            sequence_number=0,
            item_id=self.id,
            output_index=self.output_index,
            content_index=0,
            delta="",
        )
        return self._text, delta_frame(sample)

    def close(self, status: EndStatus) -> items.Reasoning:
        item = super().close(status)
        self._end_parts(item)
        self._done(item)
        return item

    def _end_parts(self, item: items.Reasoning) -> None:
        assert item.content, "the builder makes one part"
        part = item.content[0]
        self.events.out += (
            events.ReasoningTextDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                text=part.text,
            ),
            events.ContentPartDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=part,
            ),
        )


class AnnouncedSummarizedReasoning(SummarizedReasoningBuilder, AnnouncedReasoning):
    """Announces also the summary: each piece is sent first as text, then as summary. The summary part is opened and
    closed inside the item, after the text part."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self.events.out.append(
            events.ReasoningSummaryPartAdded(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=output_index,
                summary_index=0,
                part=content.SummaryText(text=""),
            )
        )

    def write(self, text: str) -> None:
        super().write(text)
        self.events.out.append(
            events.ReasoningSummaryTextDelta(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                delta=text,
            )
        )

    def _end_parts(self, item: items.Reasoning) -> None:
        super()._end_parts(item)
        [part] = item.summary
        self.events.out += (
            events.ReasoningSummaryTextDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                text=part.text,
            ),
            events.ReasoningSummaryPartDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                part=part,
                status="incomplete" if item.status == "incomplete" else UNSET,
            ),
        )
