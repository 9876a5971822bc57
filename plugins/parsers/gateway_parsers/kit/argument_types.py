"""The types of a tool's arguments."""

from __future__ import annotations

from typing import Final

from gateway.sdk import ToolDefinition
from gateway.sdk.constraints import custom_schema
from gateway.sdk.json_schema import JsonType, SchemaNode

STRING: Final[frozenset[JsonType]] = frozenset(("string",))


def arguments_schema(tool: ToolDefinition | None) -> SchemaNode:
    """The schema of a tool's arguments. A custom tool has one string, `input`."""
    if tool is None:
        return SchemaNode({})
    return SchemaNode(custom_schema() if tool.kind == "custom" else tool.parameters or {})
