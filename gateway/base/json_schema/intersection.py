"""Combining schemas, as `allOf` does, and a `$ref` with other keywords next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gateway.base.json_schema.keywords import ANNOTATIONS
from gateway.base.json_schema.references import dereferenced
from gateway.base.json_schema.types import listed_types

Conflict: TypeAlias = Callable[[str, Any, Any, str], Any]
"""Called with a keyword, its two values and its path. Returns the value to use, or raises an error."""

_MAX_PAIRS: Final = 500
"""Maximum number of pairs of schemas that are compared, because schemas may be recursive."""
_LARGER = ("minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum")
_SMALLER = ("maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum")


def intersection(one: Any, other: Any, conflict: Conflict, path: str = "#") -> Any:
    """The schema of the values that are valid under both schemas. False if one of them is False or is not a schema.

    `conflict` resolves keywords whose values cannot be combined, and types that exclude each other. Raises `TypeError`
    and `AttributeError` for keywords whose values have the wrong type.
    """
    if one is True or one == {}:
        return other
    if other is True or other == {}:
        return one
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return False
    whole = dict(one)
    for keyword, value in other.items():
        if keyword not in whole or whole[keyword] == value or keyword in ANNOTATIONS:
            whole[keyword] = value
        elif keyword == "properties":
            shared = dict(whole[keyword])
            for name, schema in value.items():
                shared[name] = intersection(
                    shared.get(name, True), schema, conflict, f"{path}.{name}"
                )
            whole[keyword] = shared
        elif keyword == "required":
            whole[keyword] = list(dict.fromkeys([*whole[keyword], *value]))
        elif keyword == "type" and (types := _shared_types(whole[keyword], value)):
            whole[keyword] = types
        elif keyword in _LARGER:
            whole[keyword] = max(whole[keyword], value)
        elif keyword in _SMALLER:
            whole[keyword] = min(whole[keyword], value)
        else:
            whole[keyword] = conflict(keyword, whole[keyword], value, path)
    return whole


def disjoint(one: Any, other: Any, root: Any) -> bool:
    """Whether the types, the enumerated values or a required property show that no value is valid under both schemas.
    False does not mean that there is such a value."""
    return _disjoint(one, other, root, set())


def _disjoint(one: Any, other: Any, root: Any, compared: set[tuple[int, int]]) -> bool:
    """`compared` contains the ids of the pairs that were compared, or are being compared, without finding them
    disjoint."""
    one, other = dereferenced(one, root), dereferenced(other, root)
    pair = id(one), id(other)
    if one is None or other is None or pair in compared or len(compared) >= _MAX_PAIRS:
        return False
    compared.add(pair)
    values, others = _enumerated(one), _enumerated(other)
    if values is not None and others is not None:
        return not values & others
    types, more = listed_types(one), listed_types(other)
    if types and more and not _shared_types(types, more):
        return True
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    properties, others_properties = one.get("properties", {}), other.get("properties", {})
    return set(types) == set(more) == {"object"} and any(
        _disjoint(properties[name], others_properties[name], root, compared)
        for name in shared
        if name in properties and name in others_properties
    )


def _shared_types(one: Any, other: Any) -> list[str]:
    first, second = listed_types({"type": one}), listed_types({"type": other})
    shared = [
        name for name in first if name in second or (name == "integer" and "number" in second)
    ]
    shared += [
        name for name in second if name == "integer" and "number" in first and name not in shared
    ]
    return shared


def _enumerated(schema: Mapping[str, Any]) -> set[bytes] | None:
    if "const" in schema:
        return {msgspec.json.encode(schema["const"])}
    if "enum" in schema:
        return {msgspec.json.encode(value) for value in schema["enum"]}
    return None
