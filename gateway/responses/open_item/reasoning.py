"""Reasoning that is being written."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.wire import content, events, items
from gateway.wire.delta_frame import DeltaFrame


class OpenReasoning:
    """A stretch of the chain of thought, as one `reasoning_text` part, without a summary."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        seal: Callable[[str], str] | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._seal = seal
        self._text: list[str] = []
        self._frame: DeltaFrame | None = None

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=items.Reasoning(id=self.id, summary=[], status="in_progress"),
            )
        )
        out.append(
            events.ContentPartAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=content.ReasoningText(text=""),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._text.append(text)
        out.append(
            events.ReasoningTextDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                delta=text,
            )
        )

    def frame_text(self, text: str) -> bytes:
        """As `write`: the event, as it is sent."""
        frame = self._frame
        if frame is None:
            frame = self._frame = DeltaFrame(
                events.ReasoningTextDelta(
                    sequence_number=0,
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=0,
                    delta="",
                )
            )
        self._text.append(text)
        return frame.around(self._next(), text)

    def close(self, status: EndStatus, out: Out) -> items.Reasoning:
        text = "".join(self._text)
        part = content.ReasoningText(text=text)
        out += (
            events.ReasoningTextDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                text=text,
            ),
            events.ContentPartDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=part,
            ),
        )
        item = items.Reasoning(
            id=self.id,
            summary=self._end_summary(text, status, out),
            content=[part],
            encrypted_content=UNSET if self._seal is None else self._seal(text),
            status=status,
        )
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item

    def _end_summary(self, text: str, status: EndStatus, out: Out) -> list[content.SummaryText]:
        """Append the events that end the summary, if there is one; return its parts."""
        return []
