"""Measuring the size of schemas, before any other function processes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class SchemaSize:
    """The counts of one schema. References are not followed."""

    __slots__ = ("alternatives", "enum_values", "pattern_bytes", "properties")

    def __init__(self) -> None:
        self.properties = 0
        """Number of `properties` and `patternProperties`."""
        self.enum_values = 0
        self.alternatives = 0
        """Number of members of `anyOf`, `oneOf` and `allOf`."""
        self.pattern_bytes = 0


def measure(schema: Mapping[str, Any], *, max_depth: int) -> SchemaSize | None:
    """The counts of `schema`, or None if it is nested more than `max_depth` levels deep. Takes linear time, without
    recursion."""
    size = SchemaSize()
    level: list[Any] = [schema]
    for _ in range(max_depth):
        level = [below for value in level for below in _count(value, size)]
        if not level:
            return size
    return None


def _count(value: Any, size: SchemaSize) -> Sequence[Any]:
    """Add the counts of `value`. Returns the objects and arrays directly inside it."""
    if type(value) is not dict:
        return [each for each in value if type(each) is dict or type(each) is list]
    properties = value.get("properties")
    if type(properties) is dict:
        size.properties += len(properties)
    named = value.get("patternProperties")
    if type(named) is dict:
        size.properties += len(named)
        size.pattern_bytes += sum(len(pattern.encode()) for pattern in named)
    listed = value.get("enum")
    if type(listed) is list:
        size.enum_values += len(listed)
    for keyword in ("anyOf", "oneOf", "allOf"):
        members = value.get(keyword)
        if type(members) is list:
            size.alternatives += len(members)
    pattern = value.get("pattern")
    if type(pattern) is str:
        size.pattern_bytes += len(pattern.encode())
    return [each for each in value.values() if type(each) is dict or type(each) is list]
