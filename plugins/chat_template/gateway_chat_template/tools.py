"""The tools of a request in the form that templates expect, kept for later requests with the same tools, as agents send them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.sdk import ToolDefinition
from gateway.sdk.caches import LruCache
from gateway_chat_template.marked_text import (
    KeptList,
    KeptObject,
    OutsideText,
    Room,
    keep_texts,
    mark_outside,
)

_WRITTEN: Final = 8
"""Bytes that are kept for each byte of a list of tools beside its objects, at most: the key, and JSON texts in this room."""


class ToolForms:
    """Makes the tools that a template reads. In at most `max_bytes` bytes, they are kept, with their JSON texts. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = LruCache[tuple[str, bytes], list[Any]](max_size=max_bytes)

    def of(
        self, tools: Sequence[ToolDefinition], scope: str | None, *, described: bool = False
    ) -> list[Any]:
        """The tools in the Chat Completions shape, with marked texts. They are kept for other prompts with the same `scope`, unless that
        is None. `described`: a tool without a description gets an empty one."""
        if described:
            tools = [
                tool
                if tool.description is not None
                else msgspec.structs.replace(tool, description="")
                for tool in tools
            ]
        if scope is None or not self._max_bytes:
            return [_form(tool) for tool in tools]
        written = msgspec.json.encode(
            [
                (each.name, each.description, each.parameters, each.strict, each.kind)
                for each in tools
            ]
        )
        key = scope, written
        if (found := self._kept.get(key)) is not None:
            return found
        made = KeptList(map(_form, tools))
        size = _size_of(made) + _WRITTEN * len(written) + 2 * len(scope)
        if size <= self._max_bytes:
            keep_texts(made, Room((_WRITTEN - 1) * len(written)))
            self._kept.put(key, made, size)
        return made


def _size_of(value: Any) -> int:
    """Bytes of a JSON value, at most. Not recursive."""
    size, todo = 0, [value]
    while todo:
        each = todo.pop()
        size += sys.getsizeof(each)
        if isinstance(each, dict):
            todo += each
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return size


def _form(tool: ToolDefinition) -> KeptObject:
    function = KeptObject(name=OutsideText(tool.name))
    if tool.description is not None:
        function["description"] = OutsideText(tool.description)
    if tool.parameters is not None:
        function["parameters"] = KeptObject(mark_outside(tool.parameters))
    elif tool.kind == "custom":
        function["parameters"] = {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        }
    else:
        function["parameters"] = {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return KeptObject(type="function", function=function)
