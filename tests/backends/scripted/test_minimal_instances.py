"""Minimal instances are valid, which jsonschema judges."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.constraints import (
    Const,
    FreeText,
    Grammar,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.base.errors import Unsupported
from gateway_scripted.instances import (
    NoInstanceError,
    minimal_instance,
    minimal_object,
    minimal_text,
)
from gateway_scripted.patterns import shortest_match

SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-50, 50), "multipleOf": st.sampled_from([1, 3, 7])},
    ),
    st.fixed_dictionaries(
        {"type": st.just("number")},
        optional={
            "exclusiveMinimum": st.integers(-50, 0),
            "exclusiveMaximum": st.integers(1, 50),
            "maximum": st.integers(1, 50),
        },
    ),
    st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": st.integers(0, 9)}),
    st.sampled_from(["^[a-z]{3}$", r"\d{4}-\d\d", "^(yes|no)+$", "[^a-z]", r"^\w+@\w+\.com$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.lists(st.integers() | st.text(max_size=3), min_size=1).map(lambda values: {"enum": values}),
    st.one_of(st.none(), st.integers(), st.text()).map(lambda value: {"const": value}),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#/$defs/shared"}),
)


def _composed(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from("abcde"), unique=True)

    def an_object(parts: tuple[list[str], list[dict[str, Any]], int]) -> dict[str, Any]:
        keys, schemas, count = parts
        properties = dict(zip(keys, schemas, strict=False))
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:count],
            "additionalProperties": False,
        }

    return st.one_of(
        st.tuples(names, st.lists(inner, min_size=5, max_size=5), st.integers(0, 5)).map(an_object),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 3)},
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        inner.map(lambda schema: {"allOf": [schema, {"description": "the same"}]}),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(SCALARS, _composed, max_leaves=8))
def test_what_is_made_is_valid(schema: dict[str, Any]) -> None:
    whole = {**schema, "$defs": {"shared": {"type": "integer", "minimum": 2}}}
    jsonschema.Draft202012Validator(whole).validate(minimal_instance(whole))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"properties": {"a": {"const": 1}}, "required": ["a"]}, {"a": 1}),
        ({"type": "object", "required": ["x"]}, {"x": None}),
        ({"type": "object", "minProperties": 2, "properties": {"a": {"type": "null"}}}, None),
        ({"type": "array", "minItems": 2, "items": {"type": "integer"}, "uniqueItems": True}, None),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 3}, None),
        ({"type": "array", "contains": {"const": 5}}, [5]),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "integer", "exclusiveMinimum": 3, "multipleOf": 2}, 4),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "maximum": -7}, -7),
        ({"type": "string", "pattern": "^a+$", "minLength": 5}, None),
        ({"type": "string", "format": "date"}, "2000-01-01"),
        ({"type": "string", "enum": [1, "one"]}, "one"),
        ({"anyOf": [False, {"const": 3}]}, 3),
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}, None),
        ({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"const": 9}}}, 9),
        ({}, None),
        (True, None),
    ],
)
def test_cases_that_are_easily_wrong(schema: Any, expected: Any) -> None:
    made = minimal_instance(schema)
    jsonschema.Draft202012Validator(schema).validate(made)
    if expected is not None:
        assert made == expected


def test_a_recursive_schema_ends_where_it_can() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["next"],
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    assert minimal_instance(schema) == {"next": None}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"required": ["a"], "properties": {"a": {"$ref": "#"}}}},
        },
        {"$ref": "#/nowhere"},
        {"$ref": "http://elsewhere/x"},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "array", "minItems": 3, "uniqueItems": True, "items": {"type": "null"}},
        {"type": "string", "pattern": "("},
    ],
)
def test_what_has_no_instance_is_said(schema: Any) -> None:
    with pytest.raises(NoInstanceError):
        minimal_instance(schema)


def test_arguments_are_always_an_object() -> None:
    assert minimal_object(None) == {}
    assert minimal_object({"type": "string"}) == {}
    assert minimal_object({"required": ["a"], "properties": {"a": {"type": "boolean"}}}) == {
        "a": False
    }


@pytest.mark.parametrize(
    "pattern",
    [
        "(yes|no)[!?]",
        r"\d{3}-\w+",
        "a{2,5}b*?c+",
        "[^a-z0-9 ]",
        r"(?P<x>ab)\1",
        r"^start.*end$",
        "(?:a|b){3}",
        "é日",
        r"\D\W\S\s",
        "[^\\w]",
        "",
    ],
)
def test_a_pattern_matches_what_is_written_for_it(pattern: str) -> None:
    text = shortest_match(pattern)
    assert text is not None
    assert re.fullmatch(pattern, text)


@given(st.integers(0, 40))
def test_a_pattern_and_a_length_hold_together(length: int) -> None:
    for pattern in ("^[a-c]+$", "x", "^(ab)*$"):
        text = shortest_match(pattern, at_least=length, search=True)
        assert text is not None
        assert re.search(pattern, text)
        assert len(text) >= length


@pytest.mark.parametrize("pattern", ["(", r"a(?=b)", "a{99999}", "[^\\s\\S]"])
def test_a_pattern_without_a_text_is_none(pattern: str) -> None:
    assert shortest_match(pattern) is None


def test_constraints_are_written_as_they_say() -> None:
    schema = {"required": ["a"], "properties": {"a": {"const": 1}}}
    constraint = Sequence(
        (
            FreeText("</think>"),
            OneOf((Const("<a>"), Const("<b>"))),
            JsonSchema(schema),
            Repeat(Regex("x+y"), 2),
            JsonObject(),
            Triggered("<t>", Const("<t>")),
        )
    )
    assert minimal_text(constraint) == '</think><a>{"a": 1}xyxy{}'
    assert json.loads(minimal_text(JsonObject())) == {}


def test_a_grammar_is_refused_and_not_passed_over() -> None:
    with pytest.raises(Unsupported, match="lark"):
        minimal_text(Sequence((Const("a"), Grammar("lark", 'start: "a"'))))
