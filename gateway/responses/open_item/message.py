"""An assistant message that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gateway.protocols import TokenLogprob
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.wire import content, events, items
from gateway.wire.delta_frame import DeltaFrame


class OpenMessage:
    """An assistant message, of one part or several."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        phase: Literal["commentary", "final_answer"] | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._phase = phase
        self._parts: list[content.OutputText | content.Refusal] = []
        self._kind: Literal["output_text", "refusal"] | None = None
        self._text: list[str] = []
        self._logprobs: list[content.Logprob] = []
        self._annotations: list[content.Annotation] = []
        self._frame: DeltaFrame | None = None
        """Of the open part, once it was needed."""

    def _item(self, status: Literal["in_progress", "completed", "incomplete"]) -> items.Message:
        return items.output_message(self.id, status, list(self._parts), self._phase)

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            )
        )

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob], out: Out) -> None:
        if self._kind != "output_text":
            self._open_part("output_text", out)
        self._text.append(text)
        if logprobs:
            self._logprobs += map(content.logprob, logprobs)
        out.append(
            events.OutputTextDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
                logprobs=[content.delta_logprob(token) for token in logprobs] if logprobs else [],
            )
        )

    def frame_text(self, text: str) -> bytes | None:
        """As `write_text`, without log probabilities: the event, as it is sent. None: nothing is written, since no text is open."""
        frame = self._frame
        if frame is None:
            if self._kind != "output_text":
                return None
            frame = self._frame = DeltaFrame(
                events.OutputTextDelta(
                    sequence_number=0,
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=len(self._parts),
                    delta="",
                    logprobs=[],
                )
            )
        self._text.append(text)
        return frame.around(self._next(), text)

    def write_refusal(self, text: str, out: Out) -> None:
        if self._kind != "refusal":
            self._open_part("refusal", out)
        self._text.append(text)
        out.append(
            events.RefusalDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.Message:
        self._close_part(out)
        item = self._item(status)
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item

    def _open_part(self, kind: Literal["output_text", "refusal"], out: Out) -> None:
        self._close_part(out)
        self._kind = kind
        empty = (
            content.OutputText(text="") if kind == "output_text" else content.Refusal(refusal="")
        )
        out.append(
            events.ContentPartAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                part=empty,
            )
        )

    def _close_part(self, out: Out) -> None:
        if self._kind is None:
            return
        text = "".join(self._text)
        index = len(self._parts)
        part: content.OutputText | content.Refusal
        if self._kind == "output_text":
            part = content.OutputText(
                text=text, annotations=self._annotations, logprobs=self._logprobs
            )
            out.append(
                events.OutputTextDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    text=text,
                    logprobs=[content.done_logprob(entry) for entry in self._logprobs],
                )
            )
        else:
            part = content.Refusal(refusal=text)
            out.append(
                events.RefusalDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    refusal=text,
                )
            )
        out.append(
            events.ContentPartDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=index,
                part=part,
            )
        )
        self._parts.append(part)
        self._kind, self._text, self._logprobs, self._annotations = None, [], [], []
        self._frame = None
