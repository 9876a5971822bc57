"""Reconstructing an item from its events in an event log that may be incomplete."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from gateway.items.summary_events import SummaryView
from gateway.wire import content, items


class ItemView:
    """The state of one item according to the log."""

    def __init__(self, item: items.Item) -> None:
        self.item = item
        self.finished: items.Item | None = None
        self.parts: list[content.OutputPart] = []
        self.open: content.OutputPart | None = None
        self.text = ""
        """Text of the open part, or of the call's arguments."""
        self.annotations: list[content.Annotation] = []
        """Annotations of the open part."""
        self.ended = False
        """Whether `text` is complete."""
        self.run = False
        """Whether the log contains the end of the call's run."""
        self.commands: list[str] = []
        """A shell call's completed commands."""
        self.command: str | None = None
        """The shell call's incomplete command, if any."""
        self.summary = SummaryView()
        """The summary of a reasoning item."""

    @property
    def has_open_part(self) -> bool:
        return self.open is not None or self.summary.open is not None

    def fits(self, item: items.Item) -> bool:
        """Whether `item` is a later state of this item."""
        if item.id != self.item.id or type(item) is not type(self.item):
            return False
        if isinstance(item, items.Reasoning) and not self.summary.fits(item.summary):
            return False
        parts = parts_of(item)
        written = len(self.parts)
        if parts[:written] != self.parts:
            return False
        if self.open is not None:
            if len(parts) <= written or type(parts[written]) is not type(self.open):
                return False
            if annotations_of(parts[written])[: len(self.annotations)] != self.annotations:
                return False
            return self._begins(text_of_part(parts[written]))
        if isinstance(item, items.ShellCall):
            return self._fit(item.action.commands)
        return self._begins(written_of(item))

    def _fit(self, commands: Sequence[str]) -> bool:
        whole, rest = commands[: len(self.commands)], commands[len(self.commands) :]
        if whole != self.commands:
            return False
        return self.command is None or (bool(rest) and rest[0].startswith(self.command))

    def _begins(self, text: str) -> bool:
        return text == self.text if self.ended else text.startswith(self.text)

    def cut_off(self) -> items.Item:
        """Return the item in its logged state, closed as incomplete."""
        item, text = self.item, self.text
        match item:
            case items.Message() | items.Reasoning():
                parts = self.parts
                if self.open is not None:
                    parts = [*parts, part_like(self.open, text, self.annotations)]
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
                commands = self.commands if self.command is None else [*self.commands, self.command]
                action = msgspec.structs.replace(item.action, commands=commands)
                return msgspec.structs.replace(item, action=action, status="incomplete")
            case items.LocalShellCall() | items.ApplyPatchCall() | items.ToolSearchCall():
                return msgspec.structs.replace(item, status="completed")  # complete when added
            case _:
                return item  # complete when it is added, so it has no deltas


def parts_of(item: items.Item) -> list[content.OutputPart]:
    if not isinstance(item, items.Message | items.Reasoning) or item.content is UNSET:
        return []
    return [
        part
        for part in item.content
        if isinstance(part, content.OutputText | content.Refusal | content.ReasoningText)
    ]


def part_like(
    like: content.OutputPart, text: str, annotations: Sequence[content.Annotation] = ()
) -> content.OutputPart:
    match like:
        case content.OutputText():
            return content.OutputText(text=text, annotations=list(annotations))
        case content.Refusal():
            return content.Refusal(refusal=text)
        case content.ReasoningText():
            return content.ReasoningText(text=text)


def text_of_part(part: content.OutputPart) -> str:
    return part.refusal if isinstance(part, content.Refusal) else part.text


def annotations_of(part: content.OutputPart) -> list[content.Annotation]:
    return part.annotations if isinstance(part, content.OutputText) else []


def written_of(item: items.Item) -> str:
    """Return the text that a call's deltas add up to."""
    match item:
        case items.FunctionCall() | items.McpCall():
            return item.arguments
        case items.CustomToolCall():
            return item.input
        case items.CodeInterpreterCall():
            return item.code or ""
        case _:
            return ""


def as_added(item: items.Item) -> items.Item:
    """Return the item in the state in which `output_item.added` shows it."""
    match item:
        case items.Message():
            return msgspec.structs.replace(item, content=[], status="in_progress")
        case items.Reasoning():
            return msgspec.structs.replace(
                item,
                summary=[],
                content=UNSET,
                encrypted_content=UNSET,
                status="in_progress",
            )
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
        case (
            items.WebSearchCall()
            | items.FileSearchCall()
            | items.LocalShellCall()
            | items.ApplyPatchCall()
            | items.ToolSearchCall()
        ):
            return msgspec.structs.replace(item, status="in_progress")
        case items.ShellCall():
            action = msgspec.structs.replace(item.action, commands=[])
            return msgspec.structs.replace(item, action=action, status="in_progress")
        case items.ShellCallOutput():
            return msgspec.structs.replace(item, output=[], status="in_progress")
        case _:
            return item  # complete when it is added
