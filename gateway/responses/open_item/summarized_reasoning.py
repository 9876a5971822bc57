"""Reasoning that is told as a summary too, for clients that show nothing else of it."""

from __future__ import annotations

from msgspec import UNSET

from gateway.responses.open_item.item import EndStatus, Out
from gateway.responses.open_item.reasoning import OpenReasoning
from gateway.wire import content, events


class OpenSummarizedReasoning(OpenReasoning):
    """An `OpenReasoning` whose summary is the whole text, in one part: a summary of its own is not made.

    Each piece is told as text first, then as summary; the summary's part is opened and ended inside the item, after the
    text's.
    """

    def open(self, out: Out) -> None:
        super().open(out)
        out.append(
            events.ReasoningSummaryPartAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                part=content.SummaryText(text=""),
            )
        )

    def write(self, text: str, out: Out) -> None:
        super().write(text, out)
        out.append(
            events.ReasoningSummaryTextDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                delta=text,
            )
        )

    def _end_summary(self, text: str, status: EndStatus, out: Out) -> list[content.SummaryText]:
        part = content.SummaryText(text=text)
        out += (
            events.ReasoningSummaryTextDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                text=text,
            ),
            events.ReasoningSummaryPartDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                summary_index=0,
                part=part,
                status="incomplete" if status == "incomplete" else UNSET,
            ),
        )
        return [part]
