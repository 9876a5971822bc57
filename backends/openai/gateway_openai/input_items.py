"""Converts a turn to the input of the Responses API."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from gateway.sdk import CallRecord, Turn
from gateway.sdk.wire import items as wire
from gateway_openai.config import OpenAIConfig
from gateway_openai.history import HistoryCall, Output, entries
from gateway_openai.parts import response_content, response_output


def input_items(turn: Turn, config: OpenAIConfig) -> list[dict[str, Any]]:
    """The input items, without ids because the upstream stores nothing. Raises `InvalidRequest`, naming the item."""
    body: list[dict[str, Any]] = []
    for param, entry in entries(turn):
        match entry:
            case wire.Message(role="assistant", content=[]):
                pass  # it says nothing, and an empty message may be refused
            case wire.Message():
                message: dict[str, Any] = {
                    "type": "message",
                    "role": entry.role,
                    "content": response_content(entry.content, param, config),
                }
                if entry.phase is not UNSET:
                    message["phase"] = entry.phase
                body.append(message)
            case wire.Reasoning():
                reasoning = (
                    _encrypted(turn.results.get(entry.id), config)
                    if config.takes.encrypted_reasoning
                    else _reasoning(entry)
                )
                if config.send_reasoning and reasoning is not None:
                    body.append(reasoning)
            case HistoryCall():
                body.append(_call(entry, config))
            case Output():
                kind = (
                    "custom_tool_call" if entry.custom and config.custom_tools else "function_call"
                )
                body.append(
                    {
                        "type": f"{kind}_output",
                        "call_id": entry.call_id,
                        "output": response_output(entry.output, param, config),
                    }
                )
    return body


def _reasoning(item: wire.Reasoning) -> dict[str, Any] | None:
    content = [] if item.content is UNSET else item.content
    texts = [{"type": "reasoning_text", "text": part.text} for part in content if part.text]
    if not texts:
        return None
    return {"type": "reasoning", "summary": [], "content": texts}


def _encrypted(record: CallRecord | None, config: OpenAIConfig) -> dict[str, Any] | None:
    """The reasoning as this upstream encrypted it; None if another model wrote it."""
    encrypted = None if record is None else record.encrypted_reasoning
    origin, _, content = (encrypted or "").partition(".")
    if not content or origin != config.origin:
        return None
    return {"type": "reasoning", "summary": [], "encrypted_content": content}


def _call(call: HistoryCall, config: OpenAIConfig) -> dict[str, Any]:
    head = {"call_id": call.call_id, "name": call.name}
    if call.custom and config.custom_tools:
        return {"type": "custom_tool_call", **head, "input": call.arguments}
    arguments = call.arguments
    if call.custom:
        arguments = json.dumps({"input": arguments}, ensure_ascii=False)
    return {"type": "function_call", **head, "arguments": arguments}
