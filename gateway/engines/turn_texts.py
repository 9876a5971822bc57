"""Finding and changing the texts of a turn, in items of all types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.plugins.protocols import Turn

_NO_TEXT: Final = frozenset(
    {
        "id", "type", "status", "role", "phase", "call_id", "name", "namespace", "server_label", "container_id",
        "approval_request_id", "created_by", "encrypted_content", "image_url", "file_id", "file_data", "data", "detail",
        "format",
    }
)  # fmt: skip
"""Fields of items that the model does not read as text: their values are names, ids, encoded files or encrypted."""


def texts_of(turn: Turn) -> list[str]:
    """All texts that the model reads: texts of messages, reasoning, calls, results, instructions, documents,
    descriptions of tools, and variables of the template. Does not include names of tools, files and images."""
    found: list[str] = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    changed_turn(turn, collect)
    return found


def changed_turn(turn: Turn, change: Callable[[str], str]) -> Turn:
    """A copy of the turn in which each text is replaced by the result of `change`."""
    return msgspec.structs.replace(
        turn,
        items=[_changed(item, change) for item in turn.items],
        results={
            item_id: msgspec.structs.replace(
                record, arguments=change(record.arguments), result=change(record.result)
            )
            for item_id, record in turn.results.items()
        },
        instructions=None if turn.instructions is None else change(turn.instructions),
        documents=[_changed(document, change) for document in turn.documents],
        chat_template_kwargs=_changed(turn.chat_template_kwargs, change),
        tools=[
            tool
            if tool.description is None
            else msgspec.structs.replace(tool, description=change(tool.description))
            for tool in turn.tools
        ],
    )


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Struct):
        fields = {
            name: _changed(old, change)
            for name in value.__struct_fields__
            if name not in _NO_TEXT and not isinstance(old := getattr(value, name), int | float)
        }
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, Mapping):
        return {
            key: each if key in _NO_TEXT else _changed(each, change) for key, each in value.items()
        }
    if isinstance(value, Sequence):
        return [_changed(each, change) for each in value]
    return value
