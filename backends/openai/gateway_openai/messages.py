"""A turn as the messages of Chat Completions."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from gateway.protocols import Turn
from gateway.wire import content as parts
from gateway.wire import items as wire
from gateway_openai.config import OpenAIConfig
from gateway_openai.history import Call, Output, entries
from gateway_openai.parts import chat_content, chat_output

_APART = "\n\n"
"""Between messages, or stretches of reasoning, that are one message here."""


def chat_messages(turn: Turn, config: OpenAIConfig) -> list[dict[str, Any]]:
    """What the model did between two messages of others is one message. Raises `InvalidRequest`, naming the item."""
    writer = _Writer(config)
    if turn.instructions:
        writer.messages.append({"role": config.instructions_role, "content": turn.instructions})
    for param, entry in entries(turn):
        match entry:
            case wire.Message(role="assistant"):
                writer.said(entry)
            case wire.Message(role=role):
                named = config.instructions_role if role == "developer" else role
                content = chat_content(entry.content, param, config)
                writer.messages.append({"role": named, "content": content})
            case wire.Reasoning():
                if config.send_reasoning and entry.content is not UNSET:
                    writer.add(
                        config.reasoning_fields[0], _APART.join(p.text for p in entry.content)
                    )
            case Call():
                writer.called(entry)
            case Output():
                writer.messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": entry.call_id,
                        "content": chat_output(entry.output, param),
                    }
                )
    return writer.messages


class _Writer:
    def __init__(self, config: OpenAIConfig) -> None:
        self.messages: list[dict[str, Any]] = []
        self._native_custom = config.custom_tools

    def _done(self) -> dict[str, Any]:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def add(self, field: str, text: str) -> None:
        """More of a field of the assistant's message."""
        if text:
            message = self._done()
            before = message.get(field)
            message[field] = f"{before}{_APART}{text}" if before else text

    def said(self, message: wire.Message) -> None:
        texts, refusals = [], []
        for part in message.content:
            match part:
                case parts.OutputText():
                    texts.append(part.text)
                case parts.Refusal():
                    refusals.append(part.refusal)
        self._done()
        self.add("content", "".join(texts))
        self.add("refusal", "".join(refusals))

    def called(self, call: Call) -> None:
        told: dict[str, Any]
        if call.custom and self._native_custom:
            told = {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        else:
            arguments = call.arguments
            if call.custom:
                arguments = json.dumps({"input": arguments}, ensure_ascii=False)
            told = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        self._done().setdefault("tool_calls", []).append({"id": call.call_id, **told})
