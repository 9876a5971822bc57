from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.json_schema import invalid_place, strict_problem

INVALID: list[tuple[Any, tuple[str | int, ...]]] = [
    ({"type": "objct"}, ("type",)),
    ({"type": ["string", "nul"]}, ("type",)),
    ({"type": []}, ("type",)),
    ({"type": None}, ("type",)),
    ({"properties": {"a": {"type": "strng"}}}, ("properties", "a", "type")),
    ({"properties": {"a": 3}}, ("properties", "a")),
    ({"properties": []}, ("properties",)),
    ({"items": {"anyOf": [{}, {"enum": 3}]}}, ("items", "anyOf", 1, "enum")),
    ({"anyOf": []}, ("anyOf",)),
    ({"required": True}, ("required",)),
    ({"required": [1]}, ("required",)),
    ({"$defs": {"x": {"minLength": -1}}}, ("$defs", "x", "minLength")),
    ({"minimum": "1"}, ("minimum",)),
    ({"minimum": True}, ("minimum",)),
    ({"pattern": 3}, ("pattern",)),
    ({"additionalProperties": {"not": 1}}, ("additionalProperties", "not")),
    ({"items": [{}, "x"]}, ("items", 1)),
]
VALID: list[Any] = [
    {},
    {"type": ["string", "null"]},
    {"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": True}},
    {"type": "object", "properties": {"type": {"type": "string"}, "enum": {}}, "x-own": 3, "nullable": True},
    {"enum": [{"type": "objct"}], "const": {"type": 3}, "default": {"type": 4}, "examples": [{"type": 5}]},
    {"maxItems": 3.0},
]  # fmt: skip


@pytest.mark.parametrize(("schema", "path"), INVALID)
def test_the_place_is_named(schema: Any, path: tuple[str | int, ...]) -> None:
    found = invalid_place(schema)
    assert found is not None
    assert found.path == path


@pytest.mark.parametrize("schema", VALID)
def test_a_schema_is_a_schema(schema: Any) -> None:
    assert invalid_place(schema) is None


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "items", "anyOf", "required", "enum", "a", "minLength", "$defs"]),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(json)
def test_the_place_leads_to_a_value(value: Any) -> None:
    found = invalid_place(value)
    if found is not None:
        for step in found.path:
            value = value[step]
        assert len(found.problem) < 300


@given(st.dictionaries(st.text(max_size=3), json, max_size=4))
def test_strictness_never_fails_on_any_value(value: Any) -> None:
    found = strict_problem(value)
    assert found is None or "required" in found.problem


def test_deep_schemas_are_read_without_recursion() -> None:
    schema: dict[str, Any] = {"type": "objct"}
    for _ in range(5000):
        schema = {"items": schema}
    found = invalid_place(schema)
    assert found is not None
    assert len(found.path) == 5001


class Name(str):
    """Counts how often any of them is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_required_properties_are_looked_up_and_not_searched_for() -> None:
    names = [f"p{n}" for n in range(2000)]
    properties: dict[str, Any] = {Name(name): {} for name in names}
    Name.compared = 0
    schema = {"properties": properties, "required": names[::-1], "additionalProperties": False}
    assert strict_problem(schema) is None
    assert Name.compared <= 4 * len(names)
