"""Messages of the most common conversations, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk.wire import content as parts
from gateway.sdk.wire import items as wire
from gateway_chat_template.features import Features
from gateway_chat_template.marked_text import AssistantText, OutsideText
from gateway_chat_template.messages import Message


def plain_messages(
    items: Sequence[wire.Item], instructions: str | None, features: Features
) -> list[Message] | None:
    """The marked messages of a conversation in which a user and the assistant write one text each in turn, after at most one
    text of the system or a developer. None for others, which take several passes: `conversation`, `messages_of`, and the marks of origins."""
    if not features.text:
        return None
    messages: list[Message] = []
    if instructions:
        if not features.system:
            return None
        messages.append({"role": "system", "content": OutsideText(instructions)})
    last = ""
    for item in items:
        if type(item) is not wire.Message or len(item.content) != 1:
            return None
        role, said = item.role, item.content[0]
        if role == last:
            return None
        if role == "user" and type(said) is parts.InputText:
            messages.append({"role": "user", "content": OutsideText(said.text)})
        elif role == "assistant" and type(said) is parts.OutputText:
            messages.append({"role": "assistant", "content": AssistantText(said.text)})
        elif not messages and role != "assistant" and type(said) is parts.InputText:
            shown = role if features.developer else "system"
            if shown == "system" and not features.system:
                return None
            messages.append({"role": shown, "content": OutsideText(said.text)})
        else:
            return None
        last = role
    return messages
