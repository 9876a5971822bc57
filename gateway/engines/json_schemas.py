"""Detecting JSON schema keywords that xgrammar ignores, so that no keyword is dropped silently.

xgrammar 0.2 converts a schema to a grammar. It omits keywords that a grammar cannot express; at most it logs a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.base.json_schema import KEYWORDS_OF_TYPE, subschemas

_NEVER = (
    "not",
    "if",
    "multipleOf",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "uniqueItems",
    "$dynamicRef",
    "$recursiveRef",
    "contentSchema",
)
_COMBINING = ("$ref", "anyOf", "oneOf", "allOf")
_SPEAKING = frozenset(keyword for keywords in KEYWORDS_OF_TYPE.values() for keyword in keywords)
# Keywords from which xgrammar infers a missing `type`.
_INFERRED_BY = {"object": ("properties",), "array": ("items", "prefixItems")}
# Pairs of keywords of which only one is enforced.
_EXCLUSIVE = (
    ("minLength", "pattern"),
    ("maxLength", "pattern"),
    ("minLength", "format"),
    ("maxLength", "format"),
    ("properties", "propertyNames"),
    ("properties", "patternProperties"),
    ("patternProperties", "propertyNames"),
    ("unevaluatedProperties", "propertyNames"),
)
_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "json-pointer",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    }
)
_LENGTHS = ("minLength", "maxLength")
_NEGATED_CLASS = re.compile(r"\[\^(?:\\.|[^\]\\])*\]")
# Characters that JSON escapes inside a string: xgrammar would write them unescaped.
_ESCAPED_IN_JSON = re.compile(
    r'["\x00-\x1f]|\\(?:\\|[nrtfv0]|x(?:[01].|22|5[cC])|u00(?:[01].|22|5[cC]))'
)


def unenforced_keyword(schema: Any) -> str | None:
    """The path of the first keyword that would not be enforced (`properties.a.not`); None if all are enforced."""
    return next(_problems(schema, ""), None)


def bounds_lengths(schema: Any) -> bool:
    """Whether the schema limits the length of a string anywhere."""
    if not isinstance(schema, Mapping):
        return False
    return any(key in schema for key in _LENGTHS) or any(
        bounds_lengths(part) for _, part in subschemas(schema)
    )


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
        yield from (f"{path}{keyword} beside {combining}" for keyword in others)
        if len(schema.get("allOf") or ()) > 1:
            yield f"{path}allOf"
    elif "enum" not in schema and "const" not in schema:
        yield from _untyped(schema, path)
    yield from _of_strings(schema, path)
    yield from _of_objects(schema, path)
    for one, other in _EXCLUSIVE:
        if one in schema and other in schema:
            yield f"{path}{other} beside {one}"
    for place, part in subschemas(schema):
        yield from _problems(part, f"{path}{place}.")


def _untyped(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Keywords for types that are not in the schema's `type`."""
    if "type" in schema:
        return
    inferred = {kind for kind, keys in _INFERRED_BY.items() if any(key in schema for key in keys)}
    for kind, keywords in KEYWORDS_OF_TYPE.items():
        if inferred != {kind}:
            yield from (
                f"{path}{keyword} without type" for keyword in keywords if keyword in schema
            )


def _of_strings(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if "format" in schema and schema["format"] not in _FORMATS:
        yield f"{path}format"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _ESCAPED_IN_JSON.search(_NEGATED_CLASS.sub("", pattern)):
        yield f"{path}pattern (with characters that JSON escapes)"


def _of_objects(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if len(schema.get("patternProperties") or ()) > 1:
        yield f"{path}patternProperties"
    described = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in described:
            yield f"{path}required (of '{name}', which is not in properties)"
