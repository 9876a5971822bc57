"""Finding out what values a schema describes. If it is recursive or unspecific, the answer may be that this is
unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from gateway.base.json_schema.references import dereferenced
from gateway.base.json_schema.types import ANY_TYPE, JsonType, type_of

# Type names that JSON Schema lacks but that tools from other languages' SDKs use.
_NAMES: Final[dict[str, JsonType]] = {
    **{name: name for name in ANY_TYPE},
    "str": "string", "text": "string", "enum": "string", "int": "integer", "long": "integer",
    "float": "number", "double": "number", "bool": "boolean", "list": "array", "dict": "object",
    "none": "null",
}  # fmt: skip
_MAX_DEPTH: Final = 16
_MAX_VISITS: Final = 500
"""Maximum number of schemas examined per question, because schemas may be recursive."""


class SchemaNode:
    """A schema within a document. References are resolved from the root of the document."""

    __slots__ = ("root", "schema")

    def __init__(self, schema: Any, root: Any = None) -> None:
        self.root = schema if root is None else root
        self.schema = schema

    def resolved(self) -> Mapping[str, Any]:
        """The schema with its reference resolved; empty if the schema is unspecified, or the reference leads to
        nothing."""
        return dereferenced(self.schema, self.root) or {}

    def document(self) -> dict[str, Any]:
        """The schema as a separate document, including the definitions that it references."""
        schema = dict(self.resolved())
        if isinstance(self.root, Mapping):
            for keyword in ("$defs", "definitions"):
                if keyword in self.root:
                    schema.setdefault(keyword, self.root[keyword])
        return schema

    def child(self, schema: Any) -> SchemaNode:
        return SchemaNode(schema, self.root)

    def member(self, key: str) -> SchemaNode | None:
        """The schema of an object's member; None if unspecified."""
        for schema in self._variants():
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and key in properties:
                return self.child(properties[key])
        for schema in self._variants():
            more = schema.get("additionalProperties")
            if isinstance(more, Mapping) and more:
                return self.child(more)
        return None

    def items(self) -> SchemaNode | None:
        """The schema of an array's items; None if unspecified."""
        for schema in self._variants():
            if isinstance(items := schema.get("items"), Mapping):
                return self.child(items)
        return None

    def types(self) -> frozenset[JsonType]:
        """The types that a value may have; empty if unspecified."""
        return self._types(_MAX_DEPTH, iter(range(_MAX_VISITS)))

    def _variants(self) -> Iterator[Mapping[str, Any]]:
        """The schema itself, and the members of its `anyOf`, `oneOf` and `allOf`."""
        return islice(self._all_variants(_MAX_DEPTH), _MAX_VISITS)

    def _all_variants(self, depth: int) -> Iterator[Mapping[str, Any]]:
        schema = self.resolved()
        yield schema
        for keyword in ("anyOf", "oneOf", "allOf") if depth else ():
            members = schema.get(keyword)
            for member in members if isinstance(members, list) else ():
                yield from self.child(member)._all_variants(depth - 1)

    def _types(self, depth: int, visits: Iterator[int]) -> frozenset[JsonType]:
        """The types that a value may have. `visits` yields one element for each schema that may still be examined."""
        if next(visits, None) is None:
            return frozenset()
        schema = self.resolved()
        named = schema.get("type")
        found: set[JsonType] = set()
        for name in named if isinstance(named, list) else [named]:
            if isinstance(name, str) and name.lower() in _NAMES:
                found.add(_NAMES[name.lower()])
        if found:
            if schema.get("nullable") is True:
                found.add("null")
            return frozenset(found)
        values = schema.get("enum")
        if isinstance(values, list):
            return frozenset(map(type_of, values))
        if "const" in schema:
            return frozenset((type_of(schema["const"]),))
        for keyword in ("anyOf", "oneOf"):
            members = schema.get(keyword)
            if isinstance(members, list) and depth:
                each = [self.child(member)._types(depth - 1, visits) for member in members]
                return frozenset().union(*each) if all(each) else ANY_TYPE
        members = schema.get("allOf")
        if isinstance(members, list) and depth:
            each = [self.child(member)._types(depth - 1, visits) for member in members]
            each = [types for types in each if types]
            return frozenset.intersection(*each) if each else frozenset()
        if "properties" in schema:
            return frozenset(("object",))
        return frozenset(("array",)) if "items" in schema else frozenset()
