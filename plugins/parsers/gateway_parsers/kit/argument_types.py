"""The types of a tool's arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from gateway.sdk import ToolDefinition
from gateway.sdk.constraints import custom_schema
from gateway.sdk.json_schema import JsonType, SchemaNode

STRING: Final[frozenset[JsonType]] = frozenset(("string",))


def arguments_schema(tool: ToolDefinition | None) -> SchemaNode:
    """The schema of a tool's arguments. A custom tool has one string, `input`."""
    if tool is None:
        return SchemaNode({})
    return SchemaNode(custom_schema() if tool.kind == "custom" else tool.parameters or {})


_MAX_BRANCHES: Final = 64
_LOOKED_AT: Final = 12
"""Branches, and members of each, among which a discriminator is searched: each call of a union is searched anew."""


class MemberTypes:
    """The types of the members of one object, which are written one after another.

    If the object's schema is a union, they are those of the branches that allow the values written before: a member
    whose schema is a constant or an enumeration says which branch it is.
    """

    __slots__ = ("_branches", "_discriminated", "_schema", "choices")

    def __init__(self, schema: SchemaNode) -> None:
        self._schema = schema
        self._branches = list(islice(_branches(schema), _MAX_BRANCHES))
        self._discriminated = len(self._branches) > 1 and any(
            map(_has_discriminator, self._branches)
        )
        self.choices: tuple[str, ...] = ()
        """The texts that the member of the last `of` may have, if its schema lists them."""

    @property
    def narrows(self) -> bool:
        """Whether `learn` has an effect."""
        return len(self._branches) > 1

    def of(self, key: str) -> frozenset[JsonType]:
        """The types of the member `key`; empty if unspecified."""
        self.choices = ()
        nodes = [self._schema.member(key)]
        if self._branches:
            members = [branch.member(key) for branch in self._branches]
            nodes = [node for node in members if node is not None] or nodes
        types: set[JsonType] = set()
        for node in nodes:
            found = node.types() if node is not None else frozenset()
            if not found or node is None:
                return frozenset()
            types |= found
            listed = node.resolved().get("enum")
            if isinstance(listed, list):
                self.choices += tuple(each for each in listed if isinstance(each, str))
        return frozenset(types)

    def undecided(self, key: str) -> bool:
        """Whether the types of the member `key` depend on a member that is not written yet."""
        if len(self._branches) < 2 or self._discriminated is False:
            return False
        found = [branch.member(key) for branch in self._branches]
        members = [node for node in found if node is not None]
        if any(map(_is_listed, members)) or len({node.types() for node in members}) < 2:
            return False
        if self._discriminated is None:
            self._discriminated = any(map(_has_discriminator, self._branches[:_LOOKED_AT]))
        return self._discriminated

    @property
    def branch(self) -> SchemaNode:
        """The schema's only branch that is left, or the schema."""
        return self._branches[0] if len(self._branches) == 1 else self._schema

    def learn(self, key: str, text: str) -> bool:
        """The member `key` has been written as `text`, a string's text or JSON. Returns whether fewer branches are left."""
        fitting = [branch for branch in self._branches if _allows(branch.member(key), text)]
        narrower = 0 < len(fitting) < len(self._branches)
        if narrower:
            self._branches = fitting
        return narrower


def member_node(schema: SchemaNode, key: str) -> SchemaNode | None:
    """The schema of the member `key`, for values that show their types: in a union, those of all its branches."""
    members = MemberTypes(schema)
    first = schema.member(key)
    if not members.narrows:
        return first
    types = members.of(key)
    if first is not None and types == first.types():
        return first
    return SchemaNode({"type": sorted(types)} if types else {})


def _branches(schema: SchemaNode) -> Iterator[SchemaNode]:
    for keyword in ("anyOf", "oneOf"):
        members = schema.resolved().get(keyword)
        for member in members if isinstance(members, list) else ():
            yield schema.child(member)


def _is_listed(node: SchemaNode) -> bool:
    schema = node.resolved()
    return "const" in schema or "enum" in schema


def _has_discriminator(branch: SchemaNode) -> bool:
    properties = branch.resolved().get("properties")
    names = properties if isinstance(properties, dict) else {}
    members = (branch.member(name) for name in islice(names, _LOOKED_AT))
    return any(node is not None and _is_listed(node) for node in members)


def _allows(node: SchemaNode | None, text: str) -> bool:
    """Whether a member of this schema may have been written as `text`. True if the schema lists no values."""
    if node is None:
        return True
    schema = node.resolved()
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return True
    return any(text == (each if isinstance(each, str) else json.dumps(each)) for each in values)
