"""Reading JSON schemas: references, types, subschemas, intersections, sizes.

The schemas come from clients, and may be malformed, recursive or large. `measure` and the functions of `validity` are
not recursive and do not follow references; by these functions, requests with schemas that are invalid or exceed the
configured limits are rejected. All other functions follow a limited number of references, and their recursion is at
most as deep as the schema is nested.
"""

from gateway.base.json_schema.intersection import disjoint, intersection
from gateway.base.json_schema.keywords import (
    ANNOTATIONS,
    KEYWORDS_OF_TYPE,
    implied_types,
    subschemas,
)
from gateway.base.json_schema.node import SchemaNode
from gateway.base.json_schema.references import UnresolvedReferenceError, dereferenced, target
from gateway.base.json_schema.size import SchemaSize, measure
from gateway.base.json_schema.types import (
    ANY_TYPE,
    JsonType,
    has_type,
    listed_types,
    type_of,
)
from gateway.base.json_schema.validity import SchemaProblem, invalid_place, strict_problem

__all__ = [
    "ANNOTATIONS",
    "ANY_TYPE",
    "KEYWORDS_OF_TYPE",
    "JsonType",
    "SchemaNode",
    "SchemaProblem",
    "SchemaSize",
    "UnresolvedReferenceError",
    "dereferenced",
    "disjoint",
    "has_type",
    "implied_types",
    "intersection",
    "invalid_place",
    "listed_types",
    "measure",
    "strict_problem",
    "subschemas",
    "target",
    "type_of",
]
