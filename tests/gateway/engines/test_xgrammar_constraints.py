"""Constraint trees as engines with xgrammar are given them; needs no engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.base.constraints import (
    Const,
    Constraint,
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
from gateway.engines.json_schemas import unenforced_keyword
from gateway.engines.xgrammar import Enforcement, structured_outputs, unwanted_special_tokens


def schema_to_ebnf(schema: Mapping[str, Any], whitespace: int | None) -> str:
    return f"schema {json.dumps(schema)} {whitespace}"


def lark_to_ebnf(definition: str) -> str:
    if "!" in definition:
        raise ValueError("no '!' in Lark")
    return f"lark {definition}"


XGRAMMAR = Enforcement(
    special={"<|a|>": 1, "<|end|>": 2, "<|b|>": 3},
    ending=frozenset({2}),
    lark_to_ebnf=lark_to_ebnf,
    schema_to_ebnf=schema_to_ebnf,
)
WITHOUT_LARK = msgspec.structs.replace(XGRAMMAR, takes_lark=False)
GUIDANCE = msgspec.structs.replace(XGRAMMAR, backend="guidance")
NUMBER = {"type": "integer"}


def tag(constraint: Constraint, by: Enforcement = XGRAMMAR) -> Any:
    enforced = structured_outputs(constraint, by)
    assert enforced is not None
    assert enforced.keys() == {"structural_tag"}
    whole = json.loads(enforced["structural_tag"])
    assert whole["type"] == "structural_tag"
    return whole["format"]


def const(text: str) -> dict[str, Any]:
    return {"type": "const_string", "value": text}


@pytest.mark.parametrize("by", [XGRAMMAR, GUIDANCE])
@pytest.mark.parametrize(
    ("constraint", "arguments"),
    [
        (JsonSchema(NUMBER), {"json": NUMBER}),
        (JsonObject(), {"json_object": True}),
        (Regex("a+"), {"regex": "a+"}),
        (Grammar("lark", 'start: "a"'), {"grammar": 'start: "a"'}),
        (Grammar("gbnf", 'root ::= "a"'), {"grammar": 'root ::= "a"'}),
        (FreeText(), None),
    ],
)
def test_single_nodes_go_by_vllm_s_own_names(
    by: Enforcement, constraint: Constraint, arguments: Any
) -> None:
    assert structured_outputs(constraint, by) == arguments


def test_bounded_white_space_takes_the_way_that_can_bound_it() -> None:
    by = msgspec.structs.replace(XGRAMMAR, max_json_whitespace=3)
    assert tag(JsonSchema(NUMBER), by) == {
        "type": "json_schema",
        "json_schema": NUMBER,
        "max_whitespace_cnt": 3,
    }
    assert tag(JsonObject(), by)["json_schema"] == {"type": "object"}


def test_schemas_with_bounded_strings_take_the_way_that_escapes_them() -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 3}}
    assert tag(JsonSchema(schema)) == {"type": "grammar", "grammar": schema_to_ebnf(schema, None)}


def test_a_tool_call_is_a_sequence() -> None:
    call = Sequence((Const("<call>"), Sequence((JsonSchema(NUMBER), Const(""))), Const("</call>")))
    assert tag(call) == {
        "type": "sequence",
        "elements": [
            const("<call>"),
            {"type": "json_schema", "json_schema": NUMBER},
            const("</call>"),
        ],
    }


def test_free_text_ends_at_the_first_occurrence() -> None:
    assert tag(Sequence((FreeText("</think>"), Regex("a")))) == {
        "type": "sequence",
        "elements": [
            {"type": "any_text", "excludes": ["</think>"]},
            const("</think>"),
            {"type": "regex", "pattern": "a"},
        ],
    }


def test_choices_and_repetitions() -> None:
    assert tag(OneOf((Const("a"), Const("b"))))["type"] == "or"
    assert tag(OneOf((Const("a"),))) == const("a")
    assert tag(Repeat(Const("a"), min=2)) == {
        "type": "repeat",
        "min": 2,
        "max": -1,
        "content": const("a"),
    }
    assert tag(Sequence((Const("x"), Repeat(Const("a"), min=0, max=0)))) == const("x")


@pytest.mark.parametrize(
    ("least", "most", "kind"), [(0, 1, "optional"), (0, None, "star"), (1, None, "plus")]
)
def test_the_usual_repetitions_have_formats_of_their_own(
    least: int, most: int | None, kind: str
) -> None:
    for body, content in (
        (Const("a"), const("a")),
        (Const("<|a|>"), {"type": "token", "token": 1}),
    ):
        assert tag(Repeat(body, least, most)) == {"type": kind, "content": content}


@pytest.mark.parametrize(
    ("least", "most"), [(1, 2), (2, 2), (2, None), (0, 3), (3, 5), (2, 32), (32, None)]
)
def test_no_token_is_inside_a_repeat(least: int, most: int | None) -> None:
    """xgrammar 0.2.8 does not survive all of them. What is written out instead allows the same numbers."""
    for body in (Const("<|a|>"), Sequence((Const("("), OneOf((Const("<|a|>"), Const("y")))))):
        made = tag(Repeat(body, least, most))
        assert "repeat" not in json.dumps(made)
        fewest, highest = counted(made, tag(body))
        assert (fewest, highest) == (least, most)


def counted(made: Any, content: Any) -> tuple[int, int | None]:
    """How often `content` may come at least, and at most."""
    if made == content:
        return 1, 1
    match made:
        case {"type": "star"}:
            return 0, None
        case {"type": "optional"}:
            return 0, counted(made["content"], content)[1]
        case {"type": "sequence", "elements": elements}:
            if elements[: len(content.get("elements", ()))] == content.get("elements"):
                # A sequence in a sequence is flat.
                own = len(content["elements"])
                parts = [(1, 1), counted({"type": "sequence", "elements": elements[own:]}, content)]
            else:
                parts = [counted(each, content) for each in elements]
            fewest = sum(low for low, _ in parts)
            highs = [high for _, high in parts]
            return fewest, None if None in highs else sum(high or 0 for high in highs)
    raise AssertionError(made)


def test_special_tokens_are_enforced_as_tokens() -> None:
    assert tag(Const("x<|a|>y<|b|>")) == {
        "type": "sequence",
        "elements": [
            const("x"),
            {"type": "token", "token": 1},
            const("y"),
            {"type": "token", "token": 3},
        ],
    }
    with pytest.raises(Unsupported, match="ends this model's output"):
        tag(Const("x<|end|>"))


def test_special_tokens_that_nobody_speaks_of_are_unwanted() -> None:
    spoken = Sequence((Const("x<|a|>"), JsonObject()))
    assert unwanted_special_tokens(spoken, XGRAMMAR) == [3]
    assert unwanted_special_tokens(JsonSchema({"const": "<|b|>"}), XGRAMMAR) == [1]


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (Const("<t>x"), Const("x")),
        (Sequence((Const("<"), Const("t>"), Const("x"))), Const("x")),
        (OneOf((Const("<t>x"), Const("<t>y"))), OneOf((Const("x"), Const("y")))),
        (Sequence((OneOf((Const("<t>x"),)), Const("y"))), Sequence((Const("x"), Const("y")))),
        (
            Repeat(Const("<t>x"), min=1, max=2),
            Sequence((Const("x"), Repeat(Const("<t>x"), min=0, max=1))),
        ),
    ],
)
def test_a_trigger_is_followed_by_the_rest_of_its_body(body: Constraint, rest: Constraint) -> None:
    assert tag(Triggered("<t>", body)) == {
        "type": "dispatch",
        "rules": [["<t>", tag(rest)]],
        "loop": True,
    }


@pytest.mark.parametrize(
    "body", [Const("<u>"), Regex("<t>"), Repeat(Const("<t>"), min=0), OneOf(())]
)
def test_a_body_that_does_not_begin_with_its_trigger_is_refused(body: Constraint) -> None:
    with pytest.raises(Unsupported, match="trigger"):
        structured_outputs(Triggered("<t>", body), XGRAMMAR)


def test_lark_inside_a_tree_is_rewritten_or_refused() -> None:
    assert tag(Sequence((Const("a"), Grammar("lark", "x"))))["elements"][1] == {
        "type": "grammar",
        "grammar": "lark x",
    }
    with pytest.raises(Unsupported, match="Lark"):
        tag(Sequence((Const("a"), Grammar("lark", "!"))))


def test_a_dot_stands_for_no_line_end() -> None:
    assert structured_outputs(Regex(r"a.[.]\..b"), XGRAMMAR) == {"regex": r"a[^\n][.]\.[^\n]b"}


def test_guidance_takes_no_trees() -> None:
    assert structured_outputs(OneOf((Const("a"), Const("b"))), GUIDANCE) == {"choice": ["a", "b"]}
    with pytest.raises(Unsupported, match="Sequence"):
        structured_outputs(Sequence((Const("a"), JsonObject())), GUIDANCE)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "properties": {"a": {"not": {}}}}, "properties.a.not"),
        ({"type": "array", "items": {"type": "number", "multipleOf": 2}}, "items.multipleOf"),
        ({"minimum": 3}, "minimum without type"),
        ({"required": ["a"]}, "required without type"),
        ({"type": "object", "required": ["a"]}, "required (of 'a', which is not in properties)"),
        ({"$ref": "#/$defs/A", "minimum": 1}, "minimum beside $ref"),
        ({"$ref": "http://x/y"}, "$ref"),
        ({"anyOf": [{"type": "string"}, {"uniqueItems": True}]}, "anyOf[1].uniqueItems"),
        ({"allOf": [{"type": "string"}, {"type": "string"}]}, "allOf"),
        ({"type": "string", "pattern": "a", "maxLength": 2}, "pattern beside maxLength"),
        ({"type": "string", "format": "color"}, "format"),
        ({"type": "string", "pattern": 'a"b'}, "pattern (with characters that JSON escapes)"),
        ({"type": "string", "pattern": r"a\\b"}, "pattern (with characters that JSON escapes)"),
    ],
)
def test_what_xgrammar_would_pass_over_is_refused_by_its_path(
    schema: dict[str, Any], keyword: str
) -> None:
    assert unenforced_keyword(schema) == keyword
    with pytest.raises(Unsupported) as caught:
        structured_outputs(Sequence((Const("a"), JsonSchema(schema))), XGRAMMAR)
    assert keyword in caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string", "pattern": r'^[^"\\]+\d$'},
        {"type": ["integer", "null"], "minimum": 1, "description": "not a number of things"},
        {"properties": {"if": {"type": "string"}, "not": {"enum": ["not"]}}, "required": ["if"]},
        {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "$defs": {"A": NUMBER}},
        {
            "type": "object",
            "properties": {"a": {"const": {"not": 1}}},
            "additionalProperties": False,
        },
        {"type": "array", "prefixItems": [NUMBER], "items": False, "minItems": 1},
    ],
)
def test_what_xgrammar_enforces_passes(schema: dict[str, Any]) -> None:
    assert unenforced_keyword(schema) is None


def test_an_engine_that_reads_no_lark_is_given_ebnf() -> None:
    assert structured_outputs(Grammar("lark", "start: x"), WITHOUT_LARK) == {
        "structural_tag": json.dumps(
            {"type": "structural_tag", "format": {"type": "grammar", "grammar": "lark start: x"}}
        )
    }
