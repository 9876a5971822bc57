"""Ending a response whose owner has died: what its event log leaves open is closed, from the events alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from gateway.wire import content, events, items
from gateway.wire.common import encode
from gateway.wire.response import Response


def closing_events(
    logged: Sequence[bytes], response: Response
) -> tuple[list[bytes], list[items.Item]]:
    """The events that end a log, and the items that it told of.

    `logged` is the whole log; `response` has its terminal status, and gets the items as its output. The closing events
    end every open item as incomplete, with what had been written of it, and then the response.
    """
    recovery = _Recovery([events.decode_event(event) for event in logged])
    closing = recovery.close()
    response.output = recovery.output()
    if response.status == "failed":
        end: type[events.ResponseFailed | events.ResponseIncomplete] = events.ResponseFailed
    else:
        end = events.ResponseIncomplete
    closing.append(end(sequence_number=recovery.next(), response=response))
    return [encode(event) for event in closing], response.output


class _Recovery:
    def __init__(self, told: Sequence[events.AnyEvent]) -> None:
        self._next = len(told)
        self._added: dict[int, items.Item] = {}
        self._done: dict[int, items.Item] = {}
        self._parts: dict[int, list[content.OutputPart]] = {}
        self._open: dict[int, content.OutputPart] = {}
        self._written: dict[int, list[str]] = {}
        self._ended: set[int] = set()
        for event in told:
            self._take(event)

    def next(self) -> int:
        number = self._next
        self._next += 1
        return number

    def output(self) -> list[items.Item]:
        """All items, finished, in order."""
        return [self._done[index] for index in sorted(self._done)]

    def _take(self, event: events.AnyEvent) -> None:
        match event:
            case events.OutputItemAdded():
                self._added[event.output_index] = event.item
            case events.OutputItemDone():
                self._done[event.output_index] = event.item
            case events.ContentPartAdded():
                self._open[event.output_index] = event.part
                self._written[event.output_index] = []
                self._ended.discard(event.output_index)
            case events.ContentPartDone():
                self._open.pop(event.output_index, None)
                self._parts.setdefault(event.output_index, []).append(event.part)
            case (
                events.OutputTextDelta()
                | events.RefusalDelta()
                | events.ReasoningTextDelta()
                | events.FunctionCallArgumentsDelta()
                | events.CustomToolCallInputDelta()
                | events.McpCallArgumentsDelta()
                | events.CodeInterpreterCallCodeDelta()
            ):
                self._written.setdefault(event.output_index, []).append(event.delta)
            case (
                events.OutputTextDone()
                | events.RefusalDone()
                | events.ReasoningTextDone()
                | events.FunctionCallArgumentsDone()
                | events.CustomToolCallInputDone()
                | events.McpCallArgumentsDone()
                | events.CodeInterpreterCallCodeDone()
            ):
                self._ended.add(event.output_index)
            case _:
                pass  # tells nothing that an item is made of

    def close(self) -> list[events.Event]:
        """End every open item, in order."""
        out: list[events.Event] = []
        for index, item in sorted(self._added.items()):
            if index not in self._done:
                self._close_item(index, item, out)
        return out

    def _close_item(self, index: int, item: items.Item, out: list[events.Event]) -> None:
        text = "".join(self._written.get(index, []))
        finished: items.Item
        match item:
            case items.Message() | items.Reasoning():
                if index in self._open:
                    self._close_part(index, item.id, text, out)
                parts = self._parts.get(index, [])
                finished = msgspec.structs.replace(item, content=parts, status="incomplete")
            case items.FunctionCall():
                finished = msgspec.structs.replace(item, arguments=text, status="incomplete")
                self._end(events.FunctionCallArgumentsDone, index, item.id, out, arguments=text)
            case items.CustomToolCall():
                finished = msgspec.structs.replace(item, input=text, status="incomplete")
                self._end(events.CustomToolCallInputDone, index, item.id, out, input=text)
            case items.McpCall():
                finished = msgspec.structs.replace(
                    item, arguments=text, status="incomplete", error="The response ended first."
                )
                self._end(events.McpCallArgumentsDone, index, item.id, out, arguments=text)
                out.append(
                    events.McpCallFailed(
                        sequence_number=self.next(), item_id=item.id, output_index=index
                    )
                )
            case items.CodeInterpreterCall():
                finished = msgspec.structs.replace(item, code=text, status="incomplete")
                self._end(events.CodeInterpreterCallCodeDone, index, item.id, out, code=text)
            case items.WebSearchCall() | items.FileSearchCall():
                finished = msgspec.structs.replace(item, status="failed")
            case _:
                finished = item  # added and done at once: nothing was written to it
        out.append(
            events.OutputItemDone(sequence_number=self.next(), output_index=index, item=finished)
        )
        self._done[index] = finished

    def _end(
        self,
        event: Callable[..., events.Event],
        index: int,
        item_id: str,
        out: list[events.Event],
        **fields: object,
    ) -> None:
        if index not in self._ended:
            out.append(
                event(sequence_number=self.next(), item_id=item_id, output_index=index, **fields)
            )

    def _close_part(self, index: int, item_id: str, text: str, out: list[events.Event]) -> None:
        opened = self._open.pop(index)
        at = len(self._parts.get(index, []))
        part: content.OutputPart
        match opened:
            case content.OutputText():
                part = content.OutputText(text=text)
                self._end(
                    events.OutputTextDone,
                    index,
                    item_id,
                    out,
                    content_index=at,
                    text=text,
                    logprobs=[],
                )
            case content.Refusal():
                part = content.Refusal(refusal=text)
                self._end(events.RefusalDone, index, item_id, out, content_index=at, refusal=text)
            case content.ReasoningText():
                part = content.ReasoningText(text=text)
                self._end(
                    events.ReasoningTextDone, index, item_id, out, content_index=at, text=text
                )
            case _:
                assert_never(opened)
        out.append(
            events.ContentPartDone(
                sequence_number=self.next(),
                item_id=item_id,
                output_index=index,
                content_index=at,
                part=part,
            )
        )
        self._parts.setdefault(index, []).append(part)
