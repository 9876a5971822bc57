"""Building blocks of constraints that several syntaxes share."""

from __future__ import annotations

from typing import Any

from gateway.constraints import Const, Constraint, JsonObject, JsonSchema, Regex, Repeat, Sequence
from gateway.errors import Unsupported
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

    Raises `Unsupported` for a custom tool with a grammar that cannot be kept inside a JSON string.
    """
    if tool.kind == "custom":
        if tool.grammar is None:
            return JsonSchema(custom_schema())
        if isinstance(tool.grammar, Regex):
            return JsonSchema(custom_schema(tool.grammar.pattern))
        raise Unsupported(
            f"The tool {tool.name!r} has a grammar. This model writes its calls as JSON, inside which only a regex can"
            " be enforced: use a regex grammar or a function tool.",
            param="tools",
        )
    if tool.parameters is None:
        return Const("{}")
    if not schema or not tool.parameters:
        return JsonObject()
    return JsonSchema({"type": "object", **tool.parameters})


def repeated(body: Constraint, *, separator: str) -> Constraint:
    """`body` once or more often, with `separator` between."""
    more = Repeat(Sequence((Const(separator), body)) if separator else body, min=0)
    return Sequence((body, more))
