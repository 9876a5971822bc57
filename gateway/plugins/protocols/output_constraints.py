"""Constraints that most output formats have in common."""

from __future__ import annotations

from typing import Any

from gateway.base.constraints import Const, Constraint, JsonObject, JsonSchema, Regex
from gateway.plugins.protocols.prompt import TextFormat, ToolDefinition


def text_constraint(text_format: TextFormat) -> Constraint | None:
    """The constraint on the final text; None if it is free."""
    match text_format.kind:
        case "text":
            return None
        case "json_object":
            return JsonObject()
        case "json_schema":
            return JsonSchema(text_format.schema) if text_format.schema else JsonObject()


def arguments_constraint(tool: ToolDefinition, *, schema: bool) -> Constraint:
    """The constraint on a call's JSON arguments; without `schema`, any object.

    A custom tool's regex is enforced inside the JSON string. A lark grammar cannot be and is only shown to the model in
    the tool's description; clients such as Codex send one with every request and validate the text themselves.
    """
    if tool.kind == "custom":
        pattern = tool.grammar.pattern if isinstance(tool.grammar, Regex) else None
        return JsonSchema(custom_schema(pattern))
    if tool.parameters is None:
        return JsonObject() if tool.kind == "builtin" else Const("{}")
    if not schema or not tool.parameters:
        return JsonObject()
    return JsonSchema({"type": "object", **tool.parameters})


def custom_schema(pattern: str | None = None) -> dict[str, Any]:
    """The schema of a custom tool as a function: its free text is the string parameter `input`."""
    text: dict[str, Any] = {"type": "string"}
    if pattern is not None:
        text["pattern"] = f"^(?:{pattern})$"
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }
