"""Converts a turn to Chat Completions messages."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from gateway.sdk import Turn
from gateway.sdk.wire import content as parts
from gateway.sdk.wire import items as wire
from gateway_openai.config import OpenAIConfig
from gateway_openai.history import HistoryCall, Output, entries
from gateway_openai.parts import chat_content, chat_output

_APART = "\n\n"
"""Separator between messages, or stretches of reasoning, that are merged into one message."""


def chat_messages(turn: Turn, config: OpenAIConfig) -> list[dict[str, Any]]:
    """The messages of a turn. Consecutive output items become one assistant message. Raises `InvalidRequest`, naming
    the item."""
    writer = _Writer(config)
    if turn.instructions:
        writer.messages.append({"role": config.instructions_role, "content": turn.instructions})
    shown: list[dict[str, Any]] = []
    for param, entry in entries(turn):
        if shown and not isinstance(entry, Output):
            writer.messages.append({"role": "user", "content": shown})
            shown = []
        match entry:
            case wire.Message(role="assistant"):
                writer.add_message(entry)
            case wire.Message(role=role):
                named = config.instructions_role if role == "developer" else role
                content = chat_content(entry.content, param, config)
                writer.messages.append({"role": named, "content": content})
            case wire.Reasoning():
                if config.send_reasoning and entry.content is not UNSET:
                    writer.add(
                        config.reasoning_fields[0], _APART.join(p.text for p in entry.content)
                    )
            case HistoryCall():
                writer.called(entry)
            case Output():
                text, images = chat_output(entry.output, param, config)
                writer.messages.append(
                    {"role": "tool", "tool_call_id": entry.call_id, "content": text}
                )
                shown += images
    if shown:
        writer.messages.append({"role": "user", "content": shown})
    return [*map(_complete, writer.messages)]


def _complete(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a content where strict upstreams require one: if it has no calls and no refusal."""
    if message["content"] is None and not (message.get("tool_calls") or message.get("refusal")):
        return {**message, "content": ""}
    return message


class _Writer:
    def __init__(self, config: OpenAIConfig) -> None:
        self.messages: list[dict[str, Any]] = []
        self._native_custom = config.custom_tools

    def _done(self) -> dict[str, Any]:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def add(self, field: str, text: str) -> None:
        """Append to a field of the assistant message."""
        if text:
            message = self._done()
            before = message.get(field)
            message[field] = f"{before}{_APART}{text}" if before else text

    def add_message(self, message: wire.Message) -> None:
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

    def called(self, call: HistoryCall) -> None:
        body: dict[str, Any]
        if call.custom and self._native_custom:
            body = {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        else:
            arguments = call.arguments
            if call.custom:
                arguments = json.dumps({"input": arguments}, ensure_ascii=False)
            body = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        self._done().setdefault("tool_calls", []).append({"id": call.call_id, **body})
