"""Conversion of items that renderers do not know to items that they know: messages between agents, results without a
call, and calls of tools that other servers ran."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from gateway.tools.call_history import json_text
from gateway.tools.client_functions import qualified_name
from gateway.wire import items
from gateway.wire.common import JsonObject
from gateway.wire.content import (
    ComputerScreenshot,
    EncryptedContent,
    InputFile,
    InputImage,
    InputText,
    MessageContent,
    ToolOutputContent,
)

_CONVERTED: Final = frozenset(
    {
        items.AgentMessage,
        items.MultiAgentCall,
        items.MultiAgentCallOutput,
        items.FunctionCallOutput,
        items.CustomToolCallOutput,
        items.ComputerCall,
        items.ComputerCallOutput,
        items.Program,
        items.ProgramOutput,
    }
)
_FOREIGN: Final = re.compile(r"gAAAA[\w-]{60,}={0,2}")
"""A Fernet token, as made by OpenAI's server."""
_UNREADABLE: Final = "(Content that another server encrypted, which this model cannot read.)"


def readable(
    context: Sequence[items.Item], kinds: Collection[type[items.Item]]
) -> Sequence[items.Item]:
    """Return `context` with items of types that renderers know. Each item becomes one item with the same id. `kinds`
    are the types of the items."""
    if _CONVERTED.isdisjoint(kinds):
        return context
    return [_readable(item) if type(item) in _CONVERTED else item for item in context]


def _readable(item: items.Item) -> items.Item:
    match item:
        case items.AgentMessage():
            return _said(
                item.id,
                f"Message from agent {item.author} to agent {item.recipient}:",
                item.content,
            )
        case items.MultiAgentCall():
            return items.FunctionCall(
                id=item.id, call_id=item.call_id, name=item.action, arguments=item.arguments
            )
        case items.MultiAgentCallOutput():
            text = "\n".join(part.text for part in item.output)
            return items.FunctionCallOutput(id=item.id, call_id=item.call_id, output=text)
        case items.ComputerCall():
            done = {
                name: value
                for name, value in (("action", item.action), ("actions", item.actions))
                if value is not UNSET
            }
            return _called(item, "computer", done)
        case items.ComputerCallOutput():
            return items.FunctionCallOutput(
                id=item.id, call_id=item.call_id, output=[_screenshot(item.output)]
            )
        case items.Program():
            return _called(item, "program", {"code": item.code})
        case items.ProgramOutput():
            return items.FunctionCallOutput(id=item.id, call_id=item.call_id, output=item.result)
        case items.FunctionCallOutput(call_id=None):
            name = qualified_name(item.name or "", item.namespace or None)
            output = item.output
            return _said(
                item.id,
                f"Result of the tool {name}:",
                [InputText(text=output)] if isinstance(output, str) else output,
            )
        case items.FunctionCallOutput() | items.CustomToolCallOutput() if not isinstance(
            item.output, str
        ):
            if any(isinstance(part, EncryptedContent) for part in item.output):
                opened: list[ToolOutputContent] = [_part(part) for part in item.output]
                return msgspec.structs.replace(item, output=opened)
    return item


def _called(
    item: items.ComputerCall | items.Program, name: str, arguments: JsonObject
) -> items.FunctionCall:
    return items.FunctionCall(
        id=item.id, call_id=item.call_id, name=name, arguments=json_text(arguments)
    )


def _screenshot(taken: ComputerScreenshot) -> InputImage | InputText:
    if not (taken.image_url or taken.file_id):
        return InputText(text="(No screenshot.)")
    return InputImage(
        image_url=taken.image_url or None,
        file_id=taken.file_id or None,
        detail=taken.detail or "auto",
    )


def _said(item_id: str, heading: str, content: Sequence[ToolOutputContent]) -> items.Message:
    """Return a user message with a heading. The heading is part of the first text, if there is one, so that the indices
    of the parts do not change."""
    parts: list[MessageContent] = [_part(part) for part in content]
    if parts and isinstance(first := parts[0], InputText):
        parts[0] = msgspec.structs.replace(first, text=f"{heading}\n{first.text}")
    else:
        parts.insert(0, InputText(text=heading))
    return items.Message(id=item_id, role="user", content=parts)


def _part(part: ToolOutputContent) -> InputText | InputImage | InputFile:
    if not isinstance(part, EncryptedContent):
        return part
    text = part.encrypted_content
    return InputText(text=_UNREADABLE if _FOREIGN.fullmatch(text) else text)
