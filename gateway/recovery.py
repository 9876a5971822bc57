"""Ending an event log whose writer has died: what it leaves open is closed, from what it tells and what was stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from gateway.told_summary import ToldSummary
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


class _Told:
    """What the log has told of one item."""

    def __init__(self, item: items.Item) -> None:
        self.item = item
        self.finished: items.Item | None = None
        self.parts: list[content.OutputPart] = []
        self.open: content.OutputPart | None = None
        self.text = ""
        """Of the open part, or of the call's arguments."""
        self.annotations: list[content.Annotation] = []
        """Of the open part."""
        self.ended = False
        """Whether that text is told to be complete."""
        self.run = False
        """Whether the call is told to have run."""
        self.commands: list[str] = []
        """Of a shell call, as far as they are told to be complete."""
        self.command: str | None = None
        """The one that is told of, and not to its end."""
        self.summary = ToldSummary()
        """Of reasoning."""

    @property
    def has_open_part(self) -> bool:
        return self.open is not None or self.summary.open is not None

    def fits(self, item: items.Item) -> bool:
        """Whether `item` is this one, further on."""
        if item.id != self.item.id or type(item) is not type(self.item):
            return False
        if isinstance(item, items.Reasoning) and not self.summary.fits(item.summary):
            return False
        parts = _parts(item)
        told = len(self.parts)
        if parts[:told] != self.parts:
            return False
        if self.open is not None:
            if len(parts) <= told or type(parts[told]) is not type(self.open):
                return False
            if _annotations(parts[told])[: len(self.annotations)] != self.annotations:
                return False
            return self._begins(_text(parts[told]))
        if isinstance(item, items.ShellCall):
            return self._fit(item.action.commands)
        return self._begins(_written(item))

    def _fit(self, commands: Sequence[str]) -> bool:
        whole, rest = commands[: len(self.commands)], commands[len(self.commands) :]
        if whole != self.commands:
            return False
        return self.command is None or (bool(rest) and rest[0].startswith(self.command))

    def _begins(self, text: str) -> bool:
        return text == self.text if self.ended else text.startswith(self.text)

    def cut_off(self) -> items.Item:
        """The item as it is told, ended as incomplete."""
        item, text = self.item, self.text
        match item:
            case items.Message() | items.Reasoning():
                parts = self.parts
                if self.open is not None:
                    parts = [*parts, _part(self.open, text, self.annotations)]
                if isinstance(item, items.Message):
                    return msgspec.structs.replace(item, content=parts, status="incomplete")
                return msgspec.structs.replace(
                    item,
                    content=parts or UNSET,
                    summary=self.summary.cut_off(),
                    status="incomplete",
                )
            case items.FunctionCall():
                return msgspec.structs.replace(item, arguments=text, status="incomplete")
            case items.CustomToolCall():
                return msgspec.structs.replace(item, input=text, status="incomplete")
            case items.McpCall():
                return msgspec.structs.replace(
                    item, arguments=text, status="incomplete", error="The response ended first."
                )
            case items.CodeInterpreterCall():
                return msgspec.structs.replace(item, code=text, status="incomplete")
            case items.WebSearchCall() | items.FileSearchCall():
                return msgspec.structs.replace(item, status="failed")
            case items.ShellCall():
                told = self.commands if self.command is None else [*self.commands, self.command]
                action = msgspec.structs.replace(item.action, commands=told)
                return msgspec.structs.replace(item, action=action, status="incomplete")
            case items.LocalShellCall() | items.ApplyPatchCall() | items.ToolSearchCall():
                return msgspec.structs.replace(item, status="completed")  # it was told whole
            case _:
                return item  # added and done at once: nothing was written to it


class _Recovery:
    def __init__(self, told: Sequence[events.AnyEvent]) -> None:
        self.closing: list[events.Event] = []
        self._next = len(told)
        self._items: dict[int, _Told] = {}
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
            told = self._items[index] = _Told(_begun(stored[index]))
            self._add(events.OutputItemAdded, output_index=index, item=told.item)
            self._finish(index, told, stored[index])

    def _take(self, event: events.AnyEvent) -> None:
        if isinstance(event, events.OutputItemAdded):
            self._items[event.output_index] = _Told(event.item)
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

    def _finish(self, index: int, told: _Told, item: items.Item) -> None:
        """Tell what is missing from `told` to `item`."""
        delta: MakeEvent
        done: MakeEvent
        match item:
            case items.Message() | items.Reasoning():
                for at, part in enumerate(_parts(item)):
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

    def _finish_commands(self, index: int, told: _Told, commands: Sequence[str]) -> None:
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
        told: _Told,
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
        self, index: int, item_id: str, at: int, part: content.OutputPart, told: _Told
    ) -> None:
        where = {"item_id": item_id, "output_index": index, "content_index": at}
        if told.open is None:
            self._add(events.ContentPartAdded, part=_part(part, ""), **where)
        written, ended = told.text, told.ended
        text = _text(part)
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
            for number, annotation in enumerate(_annotations(part)):
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


def _parts(item: items.Item) -> list[content.OutputPart]:
    if not isinstance(item, items.Message | items.Reasoning) or item.content is UNSET:
        return []
    return [
        part
        for part in item.content
        if isinstance(part, content.OutputText | content.Refusal | content.ReasoningText)
    ]


def _part(
    like: content.OutputPart, text: str, annotations: Sequence[content.Annotation] = ()
) -> content.OutputPart:
    match like:
        case content.OutputText():
            return content.OutputText(text=text, annotations=list(annotations))
        case content.Refusal():
            return content.Refusal(refusal=text)
        case content.ReasoningText():
            return content.ReasoningText(text=text)


def _text(part: content.OutputPart) -> str:
    return part.refusal if isinstance(part, content.Refusal) else part.text


def _annotations(part: content.OutputPart) -> list[content.Annotation]:
    return part.annotations if isinstance(part, content.OutputText) else []


def _written(item: items.Item) -> str:
    """What a call's deltas add up to."""
    match item:
        case items.FunctionCall() | items.McpCall():
            return item.arguments
        case items.CustomToolCall():
            return item.input
        case items.CodeInterpreterCall():
            return item.code or ""
        case _:
            return ""


def _begun(item: items.Item) -> items.Item:
    """The item as it was when it was added."""
    match item:
        case items.Message():
            return msgspec.structs.replace(item, content=[], status="in_progress")
        case items.Reasoning():
            return msgspec.structs.replace(item, summary=[], content=UNSET, encrypted_content=UNSET)
        case items.FunctionCall():
            return msgspec.structs.replace(item, arguments="", status="in_progress")
        case items.CustomToolCall():
            return msgspec.structs.replace(item, input="", status="in_progress")
        case items.McpCall():
            return msgspec.structs.replace(
                item, arguments="", output=None, error=None, status="in_progress"
            )
        case items.CodeInterpreterCall():
            return msgspec.structs.replace(item, code="", outputs=None, status="in_progress")
        case items.WebSearchCall() | items.FileSearchCall():
            return msgspec.structs.replace(item, status="in_progress")
        case items.ShellCall():
            action = msgspec.structs.replace(item.action, commands=[])
            return msgspec.structs.replace(item, action=action, status="in_progress")
        case items.ShellCallOutput():
            return msgspec.structs.replace(item, output=[], status="in_progress")
        case _:
            return item  # added and done at once
