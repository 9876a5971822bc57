"""Constraints on parameters that are written as plain text between markers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from gateway.sdk import ToolDefinition, Unsupported
from gateway.sdk.constraints import Const, Constraint, FreeText, JsonSchema, OneOf, Regex, Repeat
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import STRING, arguments_schema
from gateway_parsers.kit.template import in_order

_OPTIONAL_MOST = 100
_PLAIN_PATTERN = re.compile(r"\^?(?:[^\\^$()|]|\\[dws.\-])*\$?")


class ToolParameter:
    """One parameter of a tool: name, schema, and whether it is required."""

    __slots__ = ("name", "node", "regex", "required")

    def __init__(
        self, name: str, node: SchemaNode, *, required: bool, regex: str | None = None
    ) -> None:
        self.name = name
        self.node = node
        self.required = required
        self.regex = regex


def parameters_of(tool: ToolDefinition) -> list[ToolParameter] | None:
    """The parameters in the schema's order; None if the schema does not list them and any are allowed.

    Raises `Unsupported` for a strict tool whose parameters are not listed, because they could not be enforced.
    """
    if tool.kind == "custom":
        regex = tool.grammar.pattern if isinstance(tool.grammar, Regex) else None
        return [ToolParameter("input", SchemaNode({"type": "string"}), required=True, regex=regex)]
    if tool.parameters is None:
        return []
    members = members_of(arguments_schema(tool))
    if members is None and tool.strict and tool.parameters:
        raise Unsupported(
            f"The tool {tool.name!r} is strict, but its parameters are not listed under 'properties': this model"
            " writes calls parameter by parameter, so that such a schema cannot be enforced.",
            param="tools",
        )
    return members


def members_of(node: SchemaNode) -> list[ToolParameter] | None:
    """The members of an object's schema; None if it does not list them."""
    schema = node.resolved()
    if any(field in schema for field in ("anyOf", "oneOf", "allOf", "patternProperties")):
        return None
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return [] if schema.get("additionalProperties") is False else None
    listed = schema.get("required")
    required = (
        {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else ()
    )
    return [
        ToolParameter(name, node.child(member), required=name in required)
        for name, member in properties.items()
    ]


def value_constraint(
    parameter: ToolParameter, *, closing: str, until: str, schema: bool, string: bool | None = None
) -> Constraint:
    """The constraint on a value followed by `closing`, which ends with the marker `until`.

    Strings are written verbatim, everything else as JSON. `string`: whether the markup declares the value a string;
    None: it does not say.
    """
    node = parameter.node
    end = Const(closing)
    if parameter.regex is not None:
        return in_order([Regex(parameter.regex), end])
    resolved = node.resolved()
    values = resolved.get("enum", [resolved["const"]] if "const" in resolved else None)
    if schema and isinstance(values, list) and string is not None:
        values = [value for value in values if isinstance(value, str) is string]
    if schema and isinstance(values, list) and values:
        return in_order([OneOf(tuple(Const(_plain(value)) for value in values)), end])
    types = node.types()
    if string is False:
        types -= STRING
    if string or "string" in types or (not types and string is None):
        pattern = resolved.get("pattern")
        if schema and types == STRING and isinstance(pattern, str):
            whole = _anchored(pattern)
            if whole is not None:
                return in_order([Regex(whole), end])
        return FreeText(until=until)
    if schema:
        return in_order([JsonSchema(node.document()), end])
    if not types:
        return in_order([JsonSchema({}), end])
    kinds = sorted(types)
    return in_order([JsonSchema({"type": kinds[0] if len(kinds) == 1 else kinds}), end])


def in_any_order(
    parameters: Sequence[ToolParameter],
    one: Callable[[ToolParameter], Constraint],
    separator: str = "",
) -> Constraint:
    """A constraint for the parameters, required ones first."""
    required = [one(each) for each in parameters if each.required]
    optional = [one(each) for each in parameters if not each.required]
    later: list[Constraint] = [
        Repeat(in_order([Const(separator), each]), min=0, max=1) for each in optional
    ]
    if required or not separator:
        parts: list[Constraint] = []
        for each in required:
            parts += [Const(separator), each] if parts else [each]
        return in_order([*parts, *later])
    if not optional:
        return Const("")
    if len(optional) > _OPTIONAL_MOST:  # each may be the first, followed by any later ones
        raise Unsupported(
            f"This model's format can enforce at most {_OPTIONAL_MOST} parameters that are all optional, and here are "
            f"{len(optional)}. List some under 'required'.",
            param="tools",
        )
    first: list[Constraint] = [
        in_order([each, *later[index + 1 :]]) for index, each in enumerate(optional)
    ]
    return Repeat(OneOf(tuple(first)) if len(first) > 1 else first[0], min=0, max=1)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _anchored(pattern: str) -> str | None:
    """A search pattern as one that matches the whole text; None if the conversion is uncertain."""
    if not _PLAIN_PATTERN.fullmatch(pattern):
        return None
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    return pattern[1:-1]
