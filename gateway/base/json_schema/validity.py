"""Finding errors in schemas: positions that are not valid JSON Schema, and violations of OpenAI's strict mode.

The checks take linear time and are not recursive. They examine the keywords that engines and output formats read.
Unknown keywords are allowed. References are allowed too; they are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

Path: TypeAlias = tuple[str | int, ...]

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONE = ("additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
        "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_NUMBERS = ("minimum", "maximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_STRINGS = ("pattern", "$ref", "format", "title", "description")


class SchemaProblem(Struct, frozen=True):
    """An error at one position of a schema."""

    path: Path
    """The position: keywords, names and indices from the root."""
    problem: str
    """The error, in the words of OpenAI's API."""


def invalid_place(schema: Any) -> SchemaProblem | None:
    """The first position at which `schema` is not valid JSON Schema, or None."""
    todo: list[tuple[Any, Path]] = [(schema, ())]
    while todo:
        value, path = todo.pop()
        if type(value) is bool:
            continue
        if type(value) is not dict:
            return SchemaProblem(path, f"{_quoted(value)} is not of type 'object', 'boolean'.")
        for found in _own_problems(value, path):
            return found
        todo.extend(_below(value, path))
    return None


def strict_problem(schema: Mapping[str, Any]) -> SchemaProblem | None:
    """The first object of `schema` that OpenAI's strict mode rejects, or None. Strict mode demands that each object has
    `additionalProperties: false` and requires all its properties."""
    todo: list[tuple[Any, Path]] = [(schema, ())]
    while todo:
        value, path = todo.pop()
        if type(value) is not dict:
            continue
        properties = value.get("properties")
        if value.get("type") == "object" or type(properties) is dict:
            if value.get("additionalProperties") is not False:
                return SchemaProblem(
                    path, "'additionalProperties' is required to be supplied and to be false."
                )
            listed = value.get("required")
            required = (
                {each for each in listed if type(each) is str} if type(listed) is list else ()
            )
            for name in properties if type(properties) is dict else ():
                if name not in required:
                    return SchemaProblem(
                        path,
                        "'required' is required to be supplied and to be an array including every key in properties. "
                        f"Missing '{name[:100]}'.",
                    )
        todo.extend(_below(value, path))
    return None


def _below(schema: dict[str, Any], path: Path) -> Iterator[tuple[Any, Path]]:
    """The schemas directly inside `schema`. Values of the wrong type are left out."""
    for keyword in _ONE:
        if keyword in schema:
            yield schema[keyword], (*path, keyword)
    for keyword in _NAMED:
        named = schema.get(keyword)
        if type(named) is dict:
            for name, each in named.items():
                yield each, (*path, keyword, name)
    for keyword in _LISTED:
        listed = schema.get(keyword)
        if type(listed) is list:
            for index, each in enumerate(listed):
                yield each, (*path, keyword, index)
    items = schema.get("items")
    if type(items) is list:
        for index, each in enumerate(items):
            yield each, (*path, "items", index)
    elif "items" in schema:
        yield items, (*path, "items")


def _own_problems(schema: dict[str, Any], path: Path) -> Iterator[SchemaProblem]:
    kind = schema.get("type")
    if "type" in schema:
        kinds = kind if type(kind) is list and kind else [kind]
        if not all(type(each) is str and each in _TYPES for each in kinds):
            yield SchemaProblem(
                (*path, "type"), f"{_quoted(kind)} is not valid under any of the given schemas."
            )
    for keyword in _NAMED:
        if keyword in schema and type(schema[keyword]) is not dict:
            yield _not_of_type(schema, path, keyword, "object")
    for keyword in _LISTED:
        if keyword in schema and (type(schema[keyword]) is not list or not schema[keyword]):
            yield _not_of_type(schema, path, keyword, "array")
    if "enum" in schema and type(schema["enum"]) is not list:
        yield _not_of_type(schema, path, "enum", "array")
    required = schema.get("required")
    if required is None:
        required = []  # clients in some languages write an empty list as null
    if type(required) is not list or any(type(name) is not str for name in required):
        yield _not_of_type(schema, path, "required", "array")
    for keyword in _NUMBERS:
        if keyword in schema and type(schema[keyword]) not in (int, float):
            yield _not_of_type(schema, path, keyword, "number")
    for keyword in _COUNTS:
        if keyword in schema and not _is_count(schema[keyword]):
            yield _not_of_type(schema, path, keyword, "integer")
    for keyword in _STRINGS:
        if keyword in schema and type(schema[keyword]) is not str:
            yield _not_of_type(schema, path, keyword, "string")


def _is_count(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0 and value == int(value)


def _not_of_type(schema: dict[str, Any], path: Path, keyword: str, kind: str) -> SchemaProblem:
    return SchemaProblem((*path, keyword), f"{_quoted(schema[keyword])} is not of type '{kind}'.")


def _quoted(value: Any) -> str:
    text = repr(value) if type(value) in (str, int, float, bool) or value is None else str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
