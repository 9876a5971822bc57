"""Ending an event log whose writer has died: what it leaves open is closed, from what it tells and what was stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from gateway.responses.told_item import (
    Told,
    annotations_of,
    begun,
    part_like,
    parts_of,
    text_of_part,
)
from gateway.wire import content, events, items
from gateway.wire.common import encode
from gateway.wire.response import Response, snapshot

MakeEvent: TypeAlias = Callable[..., events.Event]


def closing_events(logged: Sequence[bytes], response: Response) -> tuple[list[bytes], Response]:
    """The events that end a log, and the final response that the last of them tells.

    `logged` is the whole log; `response` has its terminal status, and the output as far as it was stored. What the log
    has told stands: its open items are ended as they were stored, else as incomplete with what had been written; stored
    items that it lacks are told now.
    """
    recovery = _Recovery([events.decode_event(event) for event in logged])
    if not logged:
        recovery.begin(response)
    recovery.close(response.output)
    final = snapshot(response)
    final.output = recovery.output()
    number = recovery.next()
    match final.status:
        case "completed":
            end: events.Event = events.ResponseCompleted(sequence_number=number, response=final)
        case "failed":
            end = events.ResponseFailed(sequence_number=number, response=final)
        case _:
            end = events.ResponseIncomplete(sequence_number=number, response=final)
    return [encode(event) for event in (*recovery.closing, end)], final


class _Recovery:
    def __init__(self, told: Sequence[events.AnyEvent]) -> None:
        self.closing: list[events.Event] = []
        self._next = len(told)
        self._items: dict[int, Told] = {}
        for event in told:
            self._take(event)

    def next(self) -> int:
        number = self._next
        self._next += 1
        return number

    def output(self) -> list[items.Item]:
        """All items, in order; finished, once `close` was called."""
        told = [self._items[index] for index in sorted(self._items)]
        return [each.finished for each in told if each.finished is not None]

    def begin(self, response: Response) -> None:
        """Tell what comes before everything else, for a log that is empty."""
        begun = msgspec.structs.replace(
            response,
            status="queued",
            completed_at=None,
            error=None,
            incomplete_details=None,
            output=[],
            usage=None,
        )
        self._add(events.ResponseCreated, response=begun)
        self._add(events.ResponseQueued, response=begun)

    def close(self, stored: Sequence[items.Item]) -> None:
        """End every open item, and tell of those that are stored and were not told of."""
        # A part that is open ends first: calls that the server still ran may stand before it.
        for index, told in sorted(self._items.items(), key=lambda pair: not pair[1].has_open_part):
            if told.finished is None:
                known = stored[index] if index < len(stored) else None
                fits = known is not None and told.fits(known)
                self._finish(index, told, known if known is not None and fits else told.cut_off())
        for index in range(len(self._items), len(stored)):
            told = self._items[index] = Told(begun(stored[index]))
            self._add(events.OutputItemAdded, output_index=index, item=told.item)
            self._finish(index, told, stored[index])

    def _take(self, event: events.AnyEvent) -> None:
        if isinstance(event, events.OutputItemAdded):
            self._items[event.output_index] = Told(event.item)
            return
        told = self._items.get(getattr(event, "output_index", -1))
        if told is None:
            return  # of the response as a whole
        told.summary.take(event)
        match event:
            case events.OutputItemDone():
                told.finished = event.item
            case events.ContentPartAdded():
                told.open, told.text, told.ended, told.annotations = event.part, "", False, []
            case events.ContentPartDone():
                told.parts.append(event.part)
                told.open, told.text, told.ended, told.annotations = None, "", False, []
            case events.OutputTextAnnotationAdded():
                told.annotations.append(event.annotation)
            case (
                events.OutputTextDelta()
                | events.RefusalDelta()
                | events.ReasoningTextDelta()
                | events.FunctionCallArgumentsDelta()
                | events.CustomToolCallInputDelta()
                | events.McpCallArgumentsDelta()
                | events.CodeInterpreterCallCodeDelta()
            ):
                told.text += event.delta
            case (
                events.OutputTextDone()
                | events.RefusalDone()
                | events.ReasoningTextDone()
                | events.FunctionCallArgumentsDone()
                | events.CustomToolCallInputDone()
                | events.McpCallArgumentsDone()
                | events.CodeInterpreterCallCodeDone()
            ):
                told.ended = True
            case events.McpCallCompleted() | events.McpCallFailed():
                told.run = True
            case events.ShellCallCommandAdded():
                told.command = event.command
            case events.ShellCallCommandDelta():
                told.command = (told.command or "") + event.delta
            case events.ShellCallCommandDone():
                told.commands.append(event.command)
                told.command = None
            case _:
                pass  # tells nothing that an item is made of

    def _finish(self, index: int, told: Told, item: items.Item) -> None:
        """Tell what is missing from `told` to `item`."""
        delta: MakeEvent
        done: MakeEvent
        match item:
            case items.Message() | items.Reasoning():
                for at, part in enumerate(parts_of(item)):
                    if at >= len(told.parts):
                        self._finish_part(index, item.id, at, part, told)
                if isinstance(item, items.Reasoning):
                    cut_off = item.status == "incomplete"
                    for make, fields in told.summary.missing(item.summary, cut_off=cut_off):
                        self._add(make, item_id=item.id, output_index=index, **fields)
            case items.FunctionCall():
                delta, done = events.FunctionCallArgumentsDelta, events.FunctionCallArgumentsDone
                self._finish_text(index, told, item, delta, done, arguments=item.arguments)
            case items.CustomToolCall():
                delta, done = events.CustomToolCallInputDelta, events.CustomToolCallInputDone
                self._finish_text(index, told, item, delta, done, input=item.input)
            case items.McpCall():
                delta, done = events.McpCallArgumentsDelta, events.McpCallArgumentsDone
                self._finish_text(index, told, item, delta, done, arguments=item.arguments)
                if not told.run:
                    failed = item.error is not None
                    end = events.McpCallFailed if failed else events.McpCallCompleted
                    self._add(end, item_id=item.id, output_index=index)
            case items.CodeInterpreterCall():
                delta = events.CodeInterpreterCallCodeDelta
                done = events.CodeInterpreterCallCodeDone
                self._finish_text(index, told, item, delta, done, code=item.code or "")
            case items.ShellCall():
                self._finish_commands(index, told, item.action.commands)
            case _:
                pass  # has no text that is told by itself
        self._add(events.OutputItemDone, output_index=index, item=item)
        told.finished = item

    def _finish_commands(self, index: int, told: Told, commands: Sequence[str]) -> None:
        for at in range(len(told.commands), len(commands)):
            command, begun = commands[at], told.command
            told.command = None
            where = {"output_index": index, "command_index": at}
            if begun is None:
                self._add(events.ShellCallCommandAdded, command="", **where)
            if rest := command[len(begun or "") :]:
                self._add(events.ShellCallCommandDelta, delta=rest, **where)
            self._add(events.ShellCallCommandDone, command=command, **where)

    def _finish_text(
        self,
        index: int,
        told: Told,
        item: items.Item,
        delta: MakeEvent,
        done: MakeEvent,
        **whole: str,
    ) -> None:
        (text,) = whole.values()
        where = {"item_id": item.id, "output_index": index}
        if not told.ended:
            if rest := text[len(told.text) :]:
                self._add(delta, delta=rest, **where)
            self._add(done, **where, **whole)

    def _finish_part(
        self, index: int, item_id: str, at: int, part: content.OutputPart, told: Told
    ) -> None:
        where = {"item_id": item_id, "output_index": index, "content_index": at}
        if told.open is None:
            self._add(events.ContentPartAdded, part=part_like(part, ""), **where)
        written, ended = told.text, told.ended
        text = text_of_part(part)
        rest = text[len(written) :]
        tell: tuple[MakeEvent, MakeEvent, dict[str, str]]
        match part:
            case content.OutputText():
                tell = events.OutputTextDelta, events.OutputTextDone, {"text": text}
            case content.Refusal():
                tell = events.RefusalDelta, events.RefusalDone, {"refusal": text}
            case content.ReasoningText():
                tell = events.ReasoningTextDelta, events.ReasoningTextDone, {"text": text}
        if not ended:
            if rest:
                self._add(tell[0], delta=rest, **where)
            for number, annotation in enumerate(annotations_of(part)):
                if number >= len(told.annotations):
                    self._add(
                        events.OutputTextAnnotationAdded,
                        annotation_index=number,
                        annotation=annotation,
                        **where,
                    )
            self._add(tell[1], **tell[2], **where)
        self._add(events.ContentPartDone, part=part, **where)
        told.parts.append(part)
        told.open, told.text, told.ended, told.annotations = None, "", False, []

    def _add(self, event: MakeEvent, **fields: object) -> None:
        self.closing.append(event(sequence_number=self.next(), **fields))
