"""Completing an event log whose writer has died, from its events and the stored response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from gateway.items.item_events import (
    ItemView,
    annotations_of,
    as_added,
    part_like,
    parts_of,
    text_of_part,
)
from gateway.wire import content, events, items
from gateway.wire.common import encode
from gateway.wire.event_frames import decode_event
from gateway.wire.response import Response, snapshot

MakeEvent: TypeAlias = Callable[..., events.Event]


def closing_events(logged: Sequence[bytes], response: Response) -> tuple[list[bytes], Response]:
    """Return the events that complete a log, and the final response, which the last event contains.

    `logged` is the whole log. `response` has its terminal status, and the output as far as it was stored. Open items
    are closed in their stored state if that fits the log, otherwise as incomplete with their logged content. Stored
    items that are not in the log are added.
    """
    recovery = _Recovery([decode_event(event) for event in logged])
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
    def __init__(self, view: Sequence[events.AnyEvent]) -> None:
        self.closing: list[events.Event] = []
        self._next = len(view)
        self._items: dict[int, ItemView] = {}
        for event in view:
            self._take(event)

    def next(self) -> int:
        number = self._next
        self._next += 1
        return number

    def output(self) -> list[items.Item]:
        """Return all finished items, in order. After `close`, all items are finished."""
        view = [self._items[index] for index in sorted(self._items)]
        return [each.finished for each in view if each.finished is not None]

    def begin(self, response: Response) -> None:
        """Emit the initial events of an empty log."""
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
        """Close every open item, and add stored items that are not in the log."""
        # Close items with an open part first: gateway-run calls before them may still have been running.
        for index, view in sorted(self._items.items(), key=lambda pair: not pair[1].has_open_part):
            if view.finished is None:
                known = stored[index] if index < len(stored) else None
                fits = known is not None and view.fits(known)
                self._finish(index, view, known if known is not None and fits else view.cut_off())
        for index in range(len(self._items), len(stored)):
            view = self._items[index] = ItemView(as_added(stored[index]))
            self._add(events.OutputItemAdded, output_index=index, item=view.item)
            self._finish(index, view, stored[index])

    def _take(self, event: events.AnyEvent) -> None:
        if isinstance(event, events.OutputItemAdded):
            self._items[event.output_index] = ItemView(event.item)
            return
        view = self._items.get(getattr(event, "output_index", -1))
        if view is None:
            return  # an event of the response as a whole
        view.summary.take(event)
        match event:
            case events.OutputItemDone():
                view.finished = event.item
            case events.ContentPartAdded():
                view.open, view.text, view.ended, view.annotations = event.part, "", False, []
            case events.ContentPartDone():
                view.parts.append(event.part)
                view.open, view.text, view.ended, view.annotations = None, "", False, []
            case events.OutputTextAnnotationAdded():
                view.annotations.append(event.annotation)
            case (
                events.OutputTextDelta()
                | events.RefusalDelta()
                | events.ReasoningTextDelta()
                | events.FunctionCallArgumentsDelta()
                | events.CustomToolCallInputDelta()
                | events.McpCallArgumentsDelta()
                | events.CodeInterpreterCallCodeDelta()
            ):
                view.text += event.delta
            case (
                events.OutputTextDone()
                | events.RefusalDone()
                | events.ReasoningTextDone()
                | events.FunctionCallArgumentsDone()
                | events.CustomToolCallInputDone()
                | events.McpCallArgumentsDone()
                | events.CodeInterpreterCallCodeDone()
            ):
                view.ended = True
            case events.McpCallCompleted() | events.McpCallFailed():
                view.run = True
            case events.ShellCallCommandAdded():
                view.command = event.command
            case events.ShellCallCommandDelta():
                view.command = (view.command or "") + event.delta
            case events.ShellCallCommandDone():
                view.commands.append(event.command)
                view.command = None
            case _:
                pass  # carries no item state

    def _finish(self, index: int, view: ItemView, item: items.Item) -> None:
        """Emit the events between the logged state `view` and `item`."""
        delta: MakeEvent
        done: MakeEvent
        match item:
            case items.Message() | items.Reasoning():
                for at, part in enumerate(parts_of(item)):
                    if at >= len(view.parts):
                        self._finish_part(index, item.id, at, part, view)
                if isinstance(item, items.Reasoning):
                    cut_off = item.status == "incomplete"
                    for make, fields in view.summary.missing(item.summary, cut_off=cut_off):
                        self._add(make, item_id=item.id, output_index=index, **fields)
            case items.FunctionCall():
                delta, done = events.FunctionCallArgumentsDelta, events.FunctionCallArgumentsDone
                self._finish_text(index, view, item, delta, done, arguments=item.arguments)
            case items.CustomToolCall():
                delta, done = events.CustomToolCallInputDelta, events.CustomToolCallInputDone
                self._finish_text(index, view, item, delta, done, input=item.input)
            case items.McpCall():
                delta, done = events.McpCallArgumentsDelta, events.McpCallArgumentsDone
                self._finish_text(index, view, item, delta, done, arguments=item.arguments)
                if not view.run:
                    failed = item.error is not None
                    end = events.McpCallFailed if failed else events.McpCallCompleted
                    self._add(end, item_id=item.id, output_index=index)
            case items.CodeInterpreterCall():
                delta = events.CodeInterpreterCallCodeDelta
                done = events.CodeInterpreterCallCodeDone
                self._finish_text(index, view, item, delta, done, code=item.code or "")
            case items.ShellCall():
                self._finish_commands(index, view, item.action.commands)
            case _:
                pass  # has no separately sent text
        self._add(events.OutputItemDone, output_index=index, item=item)
        view.finished = item

    def _finish_commands(self, index: int, view: ItemView, commands: Sequence[str]) -> None:
        for at in range(len(view.commands), len(commands)):
            command, begun = commands[at], view.command
            view.command = None
            where = {"output_index": index, "command_index": at}
            if begun is None:
                self._add(events.ShellCallCommandAdded, command="", **where)
            if rest := command[len(begun or "") :]:
                self._add(events.ShellCallCommandDelta, delta=rest, **where)
            self._add(events.ShellCallCommandDone, command=command, **where)

    def _finish_text(
        self,
        index: int,
        view: ItemView,
        item: items.Item,
        delta: MakeEvent,
        done: MakeEvent,
        **whole: str,
    ) -> None:
        (text,) = whole.values()
        where = {"item_id": item.id, "output_index": index}
        if not view.ended:
            if rest := text[len(view.text) :]:
                self._add(delta, delta=rest, **where)
            self._add(done, **where, **whole)

    def _finish_part(
        self, index: int, item_id: str, at: int, part: content.OutputPart, view: ItemView
    ) -> None:
        where = {"item_id": item_id, "output_index": index, "content_index": at}
        if view.open is None:
            self._add(events.ContentPartAdded, part=part_like(part, ""), **where)
        written, ended = view.text, view.ended
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
                if number >= len(view.annotations):
                    self._add(
                        events.OutputTextAnnotationAdded,
                        annotation_index=number,
                        annotation=annotation,
                        **where,
                    )
            self._add(tell[1], **tell[2], **where)
        self._add(events.ContentPartDone, part=part, **where)
        view.parts.append(part)
        view.open, view.text, view.ended, view.annotations = None, "", False, []

    def _add(self, event: MakeEvent, **fields: object) -> None:
        self.closing.append(event(sequence_number=self.next(), **fields))
