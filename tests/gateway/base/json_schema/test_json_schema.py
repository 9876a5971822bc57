"""What is read of JSON schemas agrees with a validator, and hostile schemas are read in bounded work."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.base.json_schema import (
    ANY_TYPE,
    SchemaNode,
    UnresolvedReferenceError,
    dereferenced,
    disjoint,
    has_type,
    intersection,
    listed_types,
    measure,
    subschemas,
    target,
)

TYPES = ["null", "boolean", "integer", "number", "string", "object", "array"]
names = st.sampled_from(["a", "b"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


def _object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "properties": st.dictionaries(names, inner, max_size=2),
            "required": st.lists(names, unique=True),
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "title": st.text(max_size=2),
        },
    )  # fmt: skip


schemas = st.recursive(st.booleans() | st.just({}), _object, max_leaves=6)


class Conflicting(Exception):
    pass


def refuse(keyword: str, one: Any, other: Any, path: str) -> Any:
    raise Conflicting(keyword)


def is_valid(value: Any, schema: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


@given(schemas, schemas, st.lists(values, max_size=10))
def test_the_intersection_allows_what_both_schemas_allow(
    one: Any, other: Any, samples: list[Any]
) -> None:
    try:
        both = intersection(one, other, refuse)
    except Conflicting as conflict:
        # Of the keywords drawn here, only types that exclude each other cannot be combined.
        if conflict.args != ("type",):
            raise
        return
    for value in samples:
        assert is_valid(value, both) == (is_valid(value, one) and is_valid(value, other))


enumerations = st.lists(values, min_size=1, max_size=3)
told_apart = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object"),
        "properties": st.dictionaries(names, enumerations.map(lambda some: {"enum": some})),
        "required": st.lists(names, unique=True),
        "const": values,
    },
)


@given(schemas | told_apart, schemas | told_apart, st.lists(values, max_size=10))
def test_nothing_is_valid_under_two_schemas_that_are_disjoint(
    one: Any, other: Any, samples: list[Any]
) -> None:
    if disjoint(one, other, {}):
        assert not any(is_valid(value, one) and is_valid(value, other) for value in samples)


def test_schemas_are_disjoint_by_a_constant_behind_references() -> None:
    root = {
        "$defs": {
            kind: {"type": "object", "properties": {"k": {"const": kind}}, "required": ["k"]}
            for kind in ("a", "b")
        }
    }
    one, other = {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}
    assert disjoint(one, other, root)
    assert not disjoint(one, one, root)


@given(values, st.lists(st.sampled_from(TYPES), min_size=1))
def test_a_value_has_a_type_as_a_validator_says(value: Any, types: list[str]) -> None:
    assert has_type(value, types) == is_valid(value, {"type": list(dict.fromkeys(types))})


def test_nullable_is_a_type() -> None:
    assert listed_types({"type": "string", "nullable": True}) == ["string", "null"]
    assert SchemaNode({"type": "string", "nullable": True}).types() == {"string", "null"}


POINTED: dict[str, Any] = {
    "$defs": {"a/b": {"x": 1}, "c~d": {"x": 2}, "e f": {"x": 3}},
    "anyOf": [{"x": 4}],
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", POINTED),
        ("#/$defs/a~1b", {"x": 1}),
        ("#/$defs/c~0d", {"x": 2}),
        ("#/$defs/e%20f", {"x": 3}),
        ("#/anyOf/0", {"x": 4}),
    ],
)
def test_pointers_are_followed(reference: str, found: Any) -> None:
    assert target(POINTED, reference) == found
    assert dereferenced({"$ref": reference, "title": "beside"}, POINTED) == found


@pytest.mark.parametrize(
    "local", ["#/$defs/none", "#/anyOf/1", "#/anyOf/-1", "#/anyOf/" + "9" * 10_000]
)
def test_a_pointer_to_nothing_is_an_error(local: str) -> None:
    with pytest.raises(UnresolvedReferenceError) as error:
        target(POINTED, local)
    assert error.value.is_local
    assert dereferenced({"$ref": local}, POINTED) is None


@pytest.mark.parametrize("foreign", ["https://example.com/x", "#anchor", "", 5, None, ["#"]])
def test_other_references_are_not_followed(foreign: object) -> None:
    with pytest.raises(UnresolvedReferenceError) as error:
        target(POINTED, foreign)
    assert not error.value.is_local


def test_the_parts_of_a_schema_have_paths() -> None:
    schema = {"items": True, "anyOf": [1, 2], "properties": {"a": {}}, "allOf": 5, "$defs": None}
    assert list(subschemas(schema)) == [
        ("items", True),
        ("anyOf[0]", 1),
        ("anyOf[1]", 2),
        ("properties.a", {}),
    ]


def test_a_schema_is_measured() -> None:
    schema = {
        "properties": {"a": {"enum": [1, 2, 3]}, "b": {"pattern": "äb"}},
        "patternProperties": {"^x": {}},
        "anyOf": [{}, {"allOf": [{}]}],
    }
    size = measure(schema, max_depth=5)
    assert size is not None
    assert (size.properties, size.enum_values, size.alternatives, size.pattern_bytes) == (
        3,
        3,
        3,
        5,
    )
    assert measure(schema, max_depth=3) is None


def test_any_depth_is_measured() -> None:
    """A recursive walk of it would fail."""
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"items": schema}
    assert measure(schema, max_depth=64) is None
    assert measure(schema, max_depth=100_001) is not None


def circle(length: int) -> dict[str, Any]:
    definitions = {f"d{n}": {"$ref": f"#/$defs/d{(n + 1) % length}"} for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def multiplying(keyword: str) -> dict[str, Any]:
    """Each definition has ten times the next, so that there are 10^30 of the last."""
    definitions: dict[str, Any] = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(30)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, "d30": {}}}


HOSTILE: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "a circle": circle(3),
    "a long chain": circle(10_000),
    **{f"itself in {each}": {each: [{"$ref": "#"}] * 10} for each in ("anyOf", "oneOf", "allOf")},
    **{f"multiplied by {each}": multiplying(each) for each in ("anyOf", "oneOf", "allOf")},
    "no schemas": {"anyOf": 5, "properties": [], "type": {}, "enum": None, "items": "x"},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_every_question_about_a_hostile_schema_is_answered(case: str) -> None:
    node = SchemaNode(HOSTILE[case])
    assert node.member("a") is None
    assert node.items() is None
    assert node.types() <= ANY_TYPE
    assert isinstance(node.document(), dict)
    assert isinstance(node.resolved(), dict)


def test_schemas_that_require_each_other_are_compared_once() -> None:
    """Each has two properties that are the next, so that a naive comparison has 2^40 steps, or never ends."""
    definitions = {
        f"d{n}": {
            "type": "object",
            "required": ["a", "b"],
            "properties": {name: {"$ref": f"#/$defs/d{(n + 1) % 40}"} for name in ("a", "b")},
        }
        for n in range(40)
    }
    root = {"$defs": definitions}
    one, other = {"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}
    begun = time.thread_time()
    assert not disjoint(one, other, root)
    assert time.thread_time() - begun < 20
