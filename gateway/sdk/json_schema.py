"""Reading JSON schemas: references, types, subschemas, intersections."""

from gateway.base.json_schema import (
    ANNOTATIONS,
    ANY_TYPE,
    KEYWORDS_OF_TYPE,
    JsonType,
    SchemaNode,
    UnresolvedReferenceError,
    disjoint,
    has_type,
    implied_types,
    intersection,
    listed_types,
    target,
    type_of,
)

__all__ = [
    "ANNOTATIONS",
    "ANY_TYPE",
    "KEYWORDS_OF_TYPE",
    "JsonType",
    "SchemaNode",
    "UnresolvedReferenceError",
    "disjoint",
    "has_type",
    "implied_types",
    "intersection",
    "listed_types",
    "target",
    "type_of",
]
