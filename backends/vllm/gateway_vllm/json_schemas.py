"""What xgrammar passes over in a JSON schema, found beforehand: nothing is to be dropped in silence.

xgrammar 0.2 turns a schema into a grammar and leaves out what a grammar cannot say, at most with a line in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NEVER = (
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "uniqueItems",
    "$dynamicRef",
    "$recursiveRef",
    "contentSchema",
)
_OF_TYPE = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "unevaluatedProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_COMBINING = ("$ref", "anyOf", "oneOf", "allOf")
_SPEAKING = frozenset(keyword for keywords in _OF_TYPE.values() for keyword in keywords)
# By these keywords xgrammar infers the type where `type` is missing.
_INFERRED_BY = {"object": ("properties",), "array": ("items", "prefixItems")}
_SUBSCHEMAS = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "unevaluatedItems",
)
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def passed_over(schema: Any) -> str | None:
    """The path of the first keyword that would not be enforced (`properties.a.not`); None where all are."""
    return next(_problems(schema, ""), None)


def _problems(schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    for keyword in _NEVER:
        if schema.get(keyword) not in (None, False):
            yield path + keyword
    reference = schema.get("$ref")
    if isinstance(reference, str) and not (reference == "#" or reference.startswith("#/")):
        yield path + "$ref"
    combining = next((keyword for keyword in _COMBINING if keyword in schema), None)
    if combining is not None:
        others = [keyword for keyword in schema if keyword in _SPEAKING or keyword in _COMBINING]
        others.remove(combining)
        for keyword in others:
            yield f"{path}{keyword} beside {combining}"
    elif "enum" not in schema and "const" not in schema:
        yield from _untyped(schema, path)
    yield from _required(schema, path)
    for keyword in _SUBSCHEMAS:
        yield from _problems(schema.get(keyword), f"{path}{keyword}.")
    for keyword in _LISTS:
        for number, part in enumerate(schema.get(keyword) or ()):
            yield from _problems(part, f"{path}{keyword}[{number}].")
    for keyword in _MAPS:
        for name, part in (schema.get(keyword) or {}).items():
            yield from _problems(part, f"{path}{keyword}.{name}.")


def _untyped(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Keywords about a type that the schema does not say."""
    types = schema.get("type")
    if types is None:
        kinds = {kind for kind, keys in _INFERRED_BY.items() if any(key in schema for key in keys)}
        kinds = kinds if len(kinds) == 1 else set()
    else:
        kinds = {types} if isinstance(types, str) else set(types)
    if "integer" in kinds:
        kinds.add("number")
    for kind, keywords in _OF_TYPE.items():
        if types is None and kind not in kinds:
            yield from (
                f"{path}{keyword} without type" for keyword in keywords if keyword in schema
            )


def _required(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Required properties that the schema does not describe."""
    described = schema.get("properties") or {}
    if "patternProperties" in schema or not isinstance(described, Mapping):
        return
    for name in schema.get("required") or ():
        if name not in described:
            yield f"{path}required (of '{name}', which is not in properties)"
