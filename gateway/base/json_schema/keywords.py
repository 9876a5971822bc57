"""Keywords of JSON Schema 2020-12, and of the earlier drafts and of OpenAPI where these differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.base.json_schema.types import JsonType

KEYWORDS_OF_TYPE: Final[Mapping[JsonType, tuple[str, ...]]] = {
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
    "array": ("items", "prefixItems", "minItems", "maxItems", "contains", "unevaluatedItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that apply to the values of one type only."""
ANNOTATIONS: Final = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "externalDocs",
        "xml",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "$anchor",
        "$vocabulary",
        "strict",
    }
)
"""Keywords that do not affect which values are valid."""

_SINGLE_SCHEMAS: Final = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "unevaluatedItems",
)
_SCHEMA_LISTS: Final = ("prefixItems", "anyOf", "oneOf", "allOf")
_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside `schema`, each with its path (`anyOf[0]`, `properties.name`)."""
    for keyword in _SINGLE_SCHEMAS:
        if keyword in schema:
            yield keyword, schema[keyword]
    for keyword in _SCHEMA_LISTS:
        parts = schema.get(keyword)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            yield f"{keyword}[{number}]", part
    for keyword in _NAMED_SCHEMAS:
        named = schema.get(keyword)
        for name, part in (named if isinstance(named, Mapping) else {}).items():
            yield f"{keyword}.{name}", part


def implied_types(schema: Mapping[str, Any]) -> list[JsonType]:
    """The types that a schema without `type` describes, by its keywords."""
    return [
        kind
        for kind, keywords in KEYWORDS_OF_TYPE.items()
        if any(keyword in schema for keyword in keywords)
    ]
