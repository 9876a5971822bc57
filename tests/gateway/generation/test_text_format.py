"""What the answer must be is said by one parameter, whichever it is, and by no second one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest

from gateway.base.constraints import Const, FreeText, Grammar, OneOf, Regex
from gateway.base.errors import InvalidRequest, ParamPath, Unsupported, param_text
from gateway.generation.text_format import (
    shared_format,
    shared_path,
    structure_of,
    text_format_of,
    text_path,
)
from gateway.plugins.protocols import Capability, TextFormat
from gateway.wire.parameters import SharedParameters
from gateway.wire.structured import StructuredParameters

SCHEMA = {"type": "object"}
JSON = json.dumps(SCHEMA)
TAG = {"format": {"type": "regex", "pattern": "a+"}}
GBNF = 'root ::= "a"'
ALL: frozenset[Capability] = frozenset({"regex", "lark", "gbnf"})
FREE = TextFormat()
SCHEMA_FORMAT = TextFormat(kind="json_schema", name="answer", schema=SCHEMA, strict=True)
OBJECT_FORMAT = TextFormat(kind="json_object")


def outputs(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


def response(kind: str, **fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": kind, **fields}}


SHARED: list[tuple[dict[str, Any], Any, ParamPath]] = [
    (outputs(json=SCHEMA), SCHEMA_FORMAT, ("structured_outputs", "json")),
    (outputs(json=JSON), SCHEMA_FORMAT, ("structured_outputs", "json")),
    ({"guided_json": SCHEMA}, SCHEMA_FORMAT, ("guided_json",)),
    ({"guided_json": JSON}, SCHEMA_FORMAT, ("guided_json",)),
    (outputs(json_object=True), OBJECT_FORMAT, ("structured_outputs", "json_object")),
    (outputs(regex="a+"), Regex("a+"), ("structured_outputs", "regex")),
    (outputs(regex="a+", json_object=False), Regex("a+"), ("structured_outputs", "regex")),
    ({"guided_regex": ""}, Regex(""), ("guided_regex",)),
    (outputs(choice=["a", "b"]), OneOf((Const("a"), Const("b"))), ("structured_outputs", "choice")),
    ({"guided_choice": [""]}, OneOf((Const(""),)), ("guided_choice",)),
    (outputs(grammar=GBNF), Grammar("gbnf", GBNF), ("structured_outputs", "grammar")),
    ({"guided_grammar": "start: A"}, Grammar("lark", "start: A"), ("guided_grammar",)),
    (outputs(structural_tag=TAG), Regex("a+"), ("structured_outputs", "structural_tag")),
    (outputs(structural_tag=json.dumps(TAG)), Regex("a+"), ("structured_outputs", "structural_tag")),
]  # fmt: skip
"""Parameters of all APIs, what they ask for, and their paths."""
CHAT: list[tuple[dict[str, Any], Any, ParamPath]] = [
    (response("structural_tag", **TAG), Regex("a+"), ("response_format",)),
    (response("json_object"), OBJECT_FORMAT, ("response_format",)),
    (response("json_object", schema={}), OBJECT_FORMAT, ("response_format",)),
    (response("json_object", schema=SCHEMA), SCHEMA_FORMAT, ("response_format", "schema")),
    (
        response("json_schema", json_schema={"name": "n", "schema": SCHEMA, "description": "d"}),
        TextFormat(kind="json_schema", name="n", schema=SCHEMA, strict=False, description="d"),
        ("response_format", "json_schema", "schema"),
    ),
    (
        response("json_schema", json_schema={"name": "n", "strict": True}),
        TextFormat(kind="json_schema", name="n", schema={}, strict=True),
        ("response_format", "json_schema", "schema"),
    ),
]
"""Values of `response_format`, which ask for something."""
ASKING = [*SHARED, *CHAT]


def chat(sent: dict[str, Any]) -> StructuredParameters:
    return msgspec.convert(sent, StructuredParameters)


def names(cases: list[tuple[dict[str, Any], Any, ParamPath]]) -> list[str]:
    return [json.dumps(sent)[:60] for sent, *_ in cases]


@pytest.mark.parametrize(("sent", "asked", "path"), ASKING, ids=names(ASKING))
@pytest.mark.parametrize("text", [{}, response("text")], ids=["alone", "with text"])
def test_each_parameter_sets_the_format_or_the_structure(
    sent: dict[str, Any], asked: Any, path: ParamPath, text: dict[str, Any]
) -> None:
    request = chat({**text, **sent})
    is_format = isinstance(asked, TextFormat)
    assert text_format_of(request) == (asked if is_format else FREE)
    assert structure_of(request, ALL) == (None if is_format else asked)
    assert text_path(request) == path


@pytest.mark.parametrize(("sent", "asked", "path"), SHARED, ids=names(SHARED))
def test_all_apis_have_the_shared_parameters(
    sent: dict[str, Any], asked: Any, path: ParamPath
) -> None:
    request = msgspec.convert(sent, SharedParameters)
    assert shared_path(request) == path
    is_format = isinstance(asked, TextFormat)
    assert shared_format(request) == (asked if is_format else FREE)
    assert structure_of(request, ALL) == (None if is_format else asked)
    with pytest.raises(InvalidRequest) as caught:
        shared_format(request, OBJECT_FORMAT, "text.format")
    assert (caught.value.at, caught.value.code) == (path, "mutually_exclusive_parameters")
    assert "'text.format'" in caught.value.message


@pytest.mark.parametrize("sent", [{}, response("text")])
def test_without_any_the_text_is_free(sent: dict[str, Any]) -> None:
    request = chat(sent)
    assert text_format_of(request) == FREE
    assert structure_of(request, frozenset()) is None
    assert shared_path(request) == ()
    assert text_path(request) == ("response_format",)
    own = msgspec.convert({}, SharedParameters)
    assert shared_format(own, OBJECT_FORMAT, "text.format") is OBJECT_FORMAT


PAIRS = [
    pair
    for pair in itertools.combinations(ASKING, 2)
    if not set(pair[0][0]) & set(pair[1][0]) - {"structured_outputs"}
    and not set(pair[0][0].get("structured_outputs", ())) & set(pair[1][0].get("structured_outputs", ()))
]  # fmt: skip


def test_two_parameters_are_refused_with_both_their_names() -> None:
    assert len(PAIRS) > 50
    for (one, _, first), (other, _, second) in PAIRS:
        both = {**one, **other}
        if "structured_outputs" in one and "structured_outputs" in other:
            both["structured_outputs"] = {
                **one["structured_outputs"],
                **other["structured_outputs"],
            }
        with pytest.raises(InvalidRequest) as caught:
            text_format_of(chat(both))
        error = caught.value
        assert error.code == "mutually_exclusive_parameters"
        shown = [
            ("response_format",) if each[0] == "response_format" else each
            for each in (first, second)
        ]
        assert error.at in shown
        assert all(f"'{param_text(each)}'" in error.message for each in shown)


@pytest.mark.parametrize(
    ("sent", "param", "code"),
    [
        (outputs(), "structured_outputs", None),
        (outputs(json_object=False), "structured_outputs", None),
        (outputs(json="{"), "structured_outputs.json", "invalid_value"),
        (outputs(json="[]"), "structured_outputs.json", "invalid_value"),
        ({"guided_json": "3"}, "guided_json", "invalid_value"),
        ({"guided_json": "[" * 100_000}, "guided_json", "invalid_value"),
        ({"guided_choice": []}, "guided_choice", None),
        (outputs(structural_tag=3), "structured_outputs.structural_tag", "invalid_type"),
        (response("structural_tag"), "response_format.format", "missing_required_parameter"),
    ],
)
def test_a_value_that_says_nothing_is_refused(
    sent: dict[str, Any], param: str, code: str | None
) -> None:
    request = chat(sent)
    with pytest.raises(InvalidRequest) as caught:
        text_format_of(request)
        structure_of(request, ALL)
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    ("sent", "needs"),
    [
        (outputs(regex="a+"), "regex"),
        ({"guided_regex": "a+"}, "regex"),
        (outputs(grammar=GBNF), "gbnf"),
        ({"guided_grammar": "start: A"}, "lark"),
        (outputs(structural_tag=TAG), "regex"),
        (response("structural_tag", **TAG), "regex"),
    ],
)
def test_an_engine_needs_the_capability(sent: dict[str, Any], needs: Capability) -> None:
    request = chat(sent)
    assert structure_of(request, frozenset({needs})) is not None
    with pytest.raises(Unsupported) as caught:
        structure_of(request, ALL - {needs})
    assert caught.value.at == shared_path(request)
    assert f"'{needs}'" in caught.value.message


def test_choices_and_plain_tags_need_none() -> None:
    tag = {"format": {"type": "any_text"}}
    assert structure_of(chat({"guided_choice": ["a"]}), frozenset()) == OneOf((Const("a"),))
    assert structure_of(chat(outputs(structural_tag=tag)), frozenset()) == FreeText()
