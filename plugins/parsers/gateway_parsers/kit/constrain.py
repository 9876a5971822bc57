"""Building blocks of constraints that several syntaxes share."""

from __future__ import annotations

from typing import Any

from gateway.constraints import Const, Constraint, JsonObject, JsonSchema, Regex, Repeat, Sequence
from gateway.protocols.prompt import ToolDefinition


def custom_schema(pattern: str | None = None) -> dict[str, Any]:
    """The arguments of a custom tool, told to models of function style: its free text as the string `input`."""
    text: dict[str, Any] = {"type": "string"}
    if pattern is not None:
        text["pattern"] = f"^(?:{pattern})$"
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def arguments_constraint(tool: ToolDefinition, *, schema: bool) -> Constraint:
    """What a call's arguments, written as JSON, must look like; without `schema`, any object.

    A custom tool's regex is kept inside the JSON string; a lark grammar cannot be, and is left to the model, which is
    told of it in the tool's description: clients such as Codex send one with every request and check the text themselves.
    """
    if tool.kind == "custom":
        pattern = tool.grammar.pattern if isinstance(tool.grammar, Regex) else None
        return JsonSchema(custom_schema(pattern))
    if tool.parameters is None:
        return Const("{}")
    if not schema or not tool.parameters:
        return JsonObject()
    return JsonSchema({"type": "object", **tool.parameters})


def repeated(body: Constraint, *, separator: str) -> Constraint:
    """`body` once or more often, with `separator` between."""
    more = Repeat(Sequence((Const(separator), body)) if separator else body, min=0)
    return Sequence((body, more))
