"""The fields of a structural tag's formats are read as they were sent, or refused with their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.generation.tag_fields import MAX_MARKER, read_format, read_tag

MARKER = st.text(max_size=3)
UNREAD = st.sampled_from([None, 5, {"type": "dance"}, ["x"]])
"""Formats within a format, which are not read yet."""
FILLED = st.lists(UNREAD, min_size=1, max_size=3)
SCHEMA = st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
FLAGS = st.fixed_dictionaries({"at_least_one": st.booleans(), "stop_after_first": st.booleans()})
TRIGGERED = st.builds(
    lambda tags, trigger, flags: (
        {"tags": tags, "triggers": [trigger], "excludes": [], **flags},
        {"tags": tags, "triggers": trigger, "excludes": None, **flags},
    ),
    FILLED,
    st.text(min_size=1, max_size=3),
    FLAGS,
)


def same(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Fields whose values are read as they were sent."""
    return st.fixed_dictionaries(fields).map(lambda sent: (sent, sent))


def separated(tags: list[Any], separator: str, flags: dict[str, bool]) -> tuple[Any, Any]:
    sent = {"tags": tags, "separator": separator, **flags}
    read = dict(sent)
    if flags["stop_after_first"]:  # nothing is separated
        sent["separator"] = None
        del read["separator"]
    return sent, read


FORMATS: dict[str, st.SearchStrategy[Any]] = {
    "const_string": same({"value": st.text()}),
    "json_schema": same({"json_schema": SCHEMA}),
    "regex": same({"pattern": st.text()}),
    "grammar": same({"grammar": st.text()}),
    "any_text": st.sampled_from([({}, {"excludes": None}), ({"excludes": []}, {"excludes": None})]),
    "sequence": same({"elements": FILLED}),
    "or": same({"elements": FILLED}),
    "optional": same({"content": UNREAD}),
    "star": same({"content": UNREAD}),
    "plus": same({"content": UNREAD}),
    "repeat": same(
        {"content": UNREAD, "min": st.integers(0, 1000), "max": st.none() | st.integers(0, 1000)}
    ),
    "tag": same({"begin": MARKER, "content": UNREAD, "end": st.lists(MARKER, min_size=1)}),
    "triggered_tags": TRIGGERED,
    "tags_with_separator": st.builds(separated, FILLED, MARKER, FLAGS),
}
ANY = st.sampled_from([*FORMATS]).flatmap(
    lambda kind: FORMATS[kind].map(lambda fields: (kind, *fields))
)


@given(ANY, st.sampled_from([{}, {"unknown": 1}]))
def test_every_field_is_read_and_unknown_ones_are_not(
    form: tuple[str, dict[str, Any], dict[str, Any]], more: dict[str, Any]
) -> None:
    kind, sent, read = form
    described = {**sent, **more}
    assert read_format({"type": kind, **described}, ("f",)) == (kind, read, ("f",))
    assert read_format({**described, "type": 5}, ("f",), kind) == (kind, read, ("f",))
    tag = {"format": {"type": kind, **described}}
    for each in (tag, json.dumps(tag)):
        assert read_tag(each, ("t",)) == (kind, read, ("t", "format"))


@given(TRIGGERED, st.lists(UNREAD, max_size=2))
def test_the_older_form_has_structures(fields: tuple[Any, Any], structures: list[Any]) -> None:
    sent, read = fields
    del sent["tags"], read["tags"]
    tag = {"structures": structures, **sent, "format": "not read"}
    expected = ("structures", {"structures": structures, **read}, ("t",))
    assert read_tag(tag, ("t",)) == read_tag(json.dumps(tag), ("t",)) == expected


def test_a_structure_has_its_schema_between_two_texts() -> None:
    structure = {"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}
    assert read_format(structure, ("s", 0), "structure") == ("structure", structure, ("s", 0))


@pytest.mark.parametrize(
    ("kind", "sent", "field", "value"),
    [
        ("json_schema", {"json_schema": True}, "json_schema", {}),
        ("repeat", {"min": 0, "max": -1}, "max", None),
        ("tag", {"begin": "", "end": "</t>"}, "end", ["</t>"]),
        ("tags_with_separator", {"tags": [1], "separator": "", "at_least_one": 1}, "at_least_one", False),
        ("tags_with_separator", {"tags": [1], "separator": ""}, "stop_after_first", False),
        ("tag", {"begin": "x" * MAX_MARKER, "end": ""}, "begin", "x" * MAX_MARKER),
    ],
)  # fmt: skip
def test_some_values_stand_for_others(kind: str, sent: Any, field: str, value: Any) -> None:
    assert read_format({"type": kind, **sent}, ())[1][field] == value


LONG = "x" * (MAX_MARKER + 1)
TAG = {"begin": "<t>", "end": "</t>"}
REPEAT = {"min": 0, "max": 1}
TAGS = {"tags": [1], "triggers": ["<"]}
MISTAKES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("tag", {**TAG, "begin": LONG}, "f.begin", "string_above_max_length"),
    ("tag", {**TAG, "begin": None}, "f.begin", "missing_required_parameter"),
    ("tag", {**TAG, "end": LONG}, "f.end", "string_above_max_length"),
    ("tag", {**TAG, "end": ["", LONG]}, "f.end", "string_above_max_length"),
    ("tag", {**TAG, "end": []}, "f.end", "invalid_type"),
    ("tag", {**TAG, "end": ["", 1]}, "f.end", "invalid_type"),
    ("tag", {"begin": ""}, "f.end", "invalid_type"),
    ("repeat", {**REPEAT, "min": -1}, "f.min", "invalid_value"),
    ("repeat", {**REPEAT, "min": 1001}, "f.min", "invalid_value"),
    ("repeat", {**REPEAT, "min": True}, "f.min", "invalid_value"),
    ("repeat", {**REPEAT, "min": 1.0}, "f.min", "invalid_value"),
    ("repeat", {**REPEAT, "min": None}, "f.min", "invalid_value"),
    ("repeat", {**REPEAT, "max": 1001}, "f.max", "invalid_value"),
    ("repeat", {**REPEAT, "max": -2}, "f.max", "invalid_value"),
    ("tags_with_separator", {"tags": [1]}, "f.separator", "missing_required_parameter"),
    ("tags_with_separator", {"tags": [1], "separator": LONG}, "f.separator", "string_above_max_length"),
    ("tags_with_separator", {"tags": [], "separator": ""}, "f.tags", "empty_array"),
    ("tags_with_separator", {"tags": {}, "separator": ""}, "f.tags", "invalid_type"),
    ("triggered_tags", {**TAGS, "triggers": [LONG]}, "f.triggers[0]", "string_above_max_length"),
    ("triggered_tags", {**TAGS, "triggers": [1]}, "f.triggers[0]", "invalid_type"),
    ("triggered_tags", {**TAGS, "triggers": []}, "f.triggers", "empty_array"),
    ("triggered_tags", {**TAGS, "triggers": ["<", "["]}, "f.triggers", "unsupported_parameter"),
    ("triggered_tags", {**TAGS, "triggers": "<"}, "f.triggers", "invalid_type"),
    ("triggered_tags", {**TAGS, "excludes": ["a"]}, "f.excludes", "unsupported_parameter"),
    ("json_schema", {"json_schema": False}, "f.json_schema", "invalid_type"),
    ("sequence", {}, "f.elements", "missing_required_parameter"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_value_that_cannot_be_read_is_named(number: int) -> None:
    kind, sent, param, code = MISTAKES[number]
    with pytest.raises((InvalidRequest, Unsupported)) as caught:
        read_format({"type": kind, **sent}, ("f",))
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        (None, "f", "missing_required_parameter"),
        ([], "f", "invalid_type"),
        ({}, "f.type", "missing_required_parameter"),
        ({"type": 1}, "f.type", "invalid_type"),
        ({"type": "x" * 5000}, "f.type", "unsupported_parameter"),
        ({"type": "structure", "begin": "", "schema": {}, "end": ""}, "f.type", "unsupported_parameter"),
        ({"type": "structures", "structures": [1]}, "f.type", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_a_format_has_one_of_the_known_types(value: Any, param: str, code: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported)) as caught:
        read_format(value, ("f",))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("value", ["", "{", '{"format": }', "[" * 100_000])
def test_a_tag_that_is_no_json_text_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_tag(value, ("t",))
    assert (caught.value.param, caught.value.code) == ("t", "invalid_value")
