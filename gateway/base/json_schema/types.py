"""The types of JSON values and schemas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeAlias

JsonType: TypeAlias = Literal["string", "integer", "number", "boolean", "null", "object", "array"]
ANY_TYPE: Final[frozenset[JsonType]] = frozenset(
    ("string", "integer", "number", "boolean", "null", "object", "array")
)


def type_of(value: Any) -> JsonType:
    """The type of a decoded JSON value; `integer` for every `int`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def has_type(value: Any, types: Collection[str]) -> bool:
    """Whether a value is valid under a schema that lists `types`. An integer is a number, and 1.0 is an integer."""
    kind = type_of(value)
    return (
        kind in types
        or (kind == "integer" and "number" in types)
        or (kind == "number" and "integer" in types and value.is_integer())
    )


def listed_types(schema: Mapping[str, Any]) -> list[str]:
    """The types in the keyword `type` of `schema`, and `null` if OpenAPI's `nullable` is set. Empty if `schema` has no
    `type`."""
    kind = schema.get("type")
    names = [kind] if isinstance(kind, str) else list(kind or ())
    if schema.get("nullable") is True and names and "null" not in names:
        names.append("null")
    return names
