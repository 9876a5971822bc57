"""Reading JSON schemas: references, types, subschemas, intersections, sizes.

The schemas come from clients, and may be malformed, recursive or large. `measure` is neither recursive nor follows
references; requests beyond the configured limits are rejected with it. The other functions follow a limited number of
references, and call themselves at most as deeply as the schema is nested.
"""

from gateway.json_schema.intersection import disjoint, intersection
from gateway.json_schema.keywords import (
    ANNOTATIONS,
    KEYWORDS_OF_TYPE,
    implied_types,
    subschemas,
)
from gateway.json_schema.node import SchemaNode
from gateway.json_schema.references import UnresolvedReferenceError, dereferenced, target
from gateway.json_schema.size import SchemaSize, measure
from gateway.json_schema.types import (
    ANY_TYPE,
    JsonType,
    has_type,
    listed_types,
    type_of,
)

__all__ = [
    "ANNOTATIONS",
    "ANY_TYPE",
    "KEYWORDS_OF_TYPE",
    "JsonType",
    "SchemaNode",
    "SchemaSize",
    "UnresolvedReferenceError",
    "dereferenced",
    "disjoint",
    "has_type",
    "implied_types",
    "intersection",
    "listed_types",
    "measure",
    "subschemas",
    "target",
    "type_of",
]
