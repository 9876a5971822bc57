"""What a JSON schema says of a value's type: `$ref`, unions, enumerations and type lists are followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from gateway.protocols.prompt import ToolDefinition

JsonType: TypeAlias = Literal["string", "integer", "number", "boolean", "null", "object", "array"]
ANY: Final[frozenset[JsonType]] = frozenset(
    ("string", "integer", "number", "boolean", "null", "object", "array")
)
STRING: Final[frozenset[JsonType]] = frozenset(("string",))

# Names that are no JSON schema types, but stand in the tools of other languages' SDKs.
_NAMES: Final[dict[str, JsonType]] = {
    **{name: name for name in ANY},
    "str": "string", "text": "string", "enum": "string", "int": "integer", "long": "integer",
    "float": "number", "double": "number", "bool": "boolean", "list": "array", "dict": "object",
    "none": "null",
}  # fmt: skip
_MAX_DEPTH = 16


class SchemaNode:
    """A schema within its document, against whose root references are resolved."""

    __slots__ = ("root", "schema")

    def __init__(self, schema: Any, root: Any = None) -> None:
        self.root = schema if root is None else root
        self.schema = schema

    @classmethod
    def of_tool(cls, tool: ToolDefinition | None) -> SchemaNode:
        """The schema of a tool's arguments; a custom tool takes one string, `input`."""
        if tool is None:
            return cls({})
        if tool.kind == "custom":
            return cls({"type": "object", "properties": {"input": {"type": "string"}}})
        return cls(tool.parameters or {})

    def resolved(self) -> dict[str, Any]:
        """The schema itself, its reference followed; empty where it says nothing or cannot be found."""
        schema = self.schema
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, Mapping):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return dict(schema)
            schema = self._at(reference)
        return {}

    def _at(self, reference: str) -> Any:
        found = self.root
        if reference.startswith("#"):
            for step in reference[1:].split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                if isinstance(found, Mapping):
                    found = found.get(step)
                elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                    found = found[int(step)]
                else:
                    return None
            return found
        return None

    def child(self, schema: Any) -> SchemaNode:
        return SchemaNode(schema, self.root)

    def alternatives(self) -> list[SchemaNode]:
        """The members of this schema's unions and intersections."""
        schema = self.resolved()
        return [
            self.child(member)
            for field in ("anyOf", "oneOf", "allOf")
            if isinstance(schema.get(field), list)
            for member in schema[field]
        ]

    def member(self, key: str, depth: int = _MAX_DEPTH) -> SchemaNode | None:
        """The schema of an object's member; None where nothing is said of it."""
        schema = self.resolved()
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return self.child(properties[key])
        for alternative in self.alternatives() if depth else ():
            found = alternative.member(key, depth - 1)
            if found is not None:
                return found
        more = schema.get("additionalProperties")
        return self.child(more) if isinstance(more, Mapping) and more else None

    def items(self, depth: int = _MAX_DEPTH) -> SchemaNode | None:
        """The schema of an array's items; None where nothing is said of them."""
        found = self.resolved().get("items")
        if isinstance(found, Mapping):
            return self.child(found)
        for alternative in self.alternatives() if depth else ():
            node = alternative.items(depth - 1)
            if node is not None:
                return node
        return None

    def types(self, depth: int = _MAX_DEPTH) -> frozenset[JsonType]:
        """The types that a value may have; empty where the schema does not say."""
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
        for field in ("anyOf", "oneOf"):
            members = schema.get(field)
            if isinstance(members, list) and depth:
                each = [self.child(member).types(depth - 1) for member in members]
                return frozenset().union(*each) if all(each) else ANY
        members = schema.get("allOf")
        if isinstance(members, list) and depth:
            each = [types for m in members if (types := self.child(m).types(depth - 1))]
            return frozenset.intersection(*each) if each else frozenset()
        if "properties" in schema:
            return frozenset(("object",))
        return frozenset(("array",)) if "items" in schema else frozenset()


def type_of(value: Any) -> JsonType:
    """The JSON type of a Python value."""
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
