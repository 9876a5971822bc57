"""What a forced call must look like, in the syntax of every family."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

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
    Triggered,
)
from gateway.base.constraints import Sequence as InOrder
from gateway.base.errors import Unsupported
from gateway.plugins.protocols import CallPiece, NamedTool, TextFormat, ToolDefinition, Turn
from gateway_parsers import BY_NAME, FORMATS, MarkupFormat
from gateway_parsers.spec import FormatSpec

CALLING = [spec for spec in FORMATS if spec.calls is not None]
calling = pytest.mark.parametrize("spec", CALLING, ids=lambda spec: spec.name)
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", parameters=SCHEMA)
STOP = ToolDefinition(name="stop_all")
ALL = CallPiece("get_weather", '{"city": "Oslo", "days": 3, "unit": "c", "note": "x"}')
FEW = CallPiece("get_weather", '{"city": "Oslo", "days": 3}')
NONE = CallPiece("stop_all", "{}")
_DECODER = json.JSONDecoder()


def ends(tree: Constraint, text: str, pos: int) -> Iterator[int]:
    """Where a part of `text` from `pos` on may end that fits `tree`. JSON is not validated beyond its type."""
    match tree:
        case Const(said):
            if text.startswith(said, pos):
                yield pos + len(said)
        case JsonSchema() | JsonObject():
            try:
                value, end = _DECODER.raw_decode(text, pos)
            except ValueError:
                return
            kind = "object" if isinstance(tree, JsonObject) else tree.schema.get("type")
            if _fits(value, kind):
                yield end
        case Regex(pattern):
            for end in range(pos, len(text) + 1):
                if re.fullmatch(pattern, text[pos:end]):
                    yield end
        case FreeText(until):
            if until is None:
                yield len(text)
            elif (found := text.find(until, pos)) >= 0:
                yield found + len(until)
        case InOrder(parts):
            reached = {pos}
            for part in parts:
                reached = {end for start in reached for end in ends(part, text, start)}
            yield from reached
        case OneOf(options):
            for option in options:
                yield from ends(option, text, pos)
        case Repeat(body, least, most):
            reached, count = {pos}, 0
            while reached and (most is None or count <= most):
                if count >= least:
                    yield from reached
                reached = {
                    end for start in reached for end in ends(body, text, start) if end > start
                }
                count += 1
        case Triggered() | Grammar():
            raise AssertionError(tree)


def _fits(value: Any, kind: Any) -> bool:
    names = {"string": str, "integer": int, "object": dict, "null": type(None), "array": list}
    kinds = kind if isinstance(kind, list) else [kind]
    return kind is None or any(isinstance(value, names[each]) for each in kinds)


def fits(tree: Constraint, text: str) -> bool:
    return len(text) in ends(tree, text, 0)


def forced(spec: FormatSpec, choice: Any = "required", **turn: Any) -> Constraint:
    asked = Turn(items=(), tools=[WEATHER, STOP], tool_choice=choice, **turn)
    constraint = MarkupFormat(spec).constraint(asked, tail="text")
    assert constraint is not None
    return constraint


@calling
def test_what_the_family_writes_is_allowed(spec: FormatSpec) -> None:
    frame = spec.frame
    before = frame.close if frame is not None and frame.with_calls else ""
    written = [
        before + MarkupFormat(spec).write(calls, tail="text") for calls in ([ALL], [FEW], [NONE])
    ]
    several = before + MarkupFormat(spec).write([FEW, NONE, ALL], tail="text")
    many, one = forced(spec), forced(spec, parallel_tool_calls=False)
    for text in written:
        assert fits(many, text)
        assert fits(one, text)
    assert fits(many, several)
    assert not fits(one, several)


@calling
def test_what_is_no_call_is_not_allowed(spec: FormatSpec) -> None:
    constraint = forced(spec)
    frame = spec.frame
    before = frame.close if frame is not None and frame.with_calls else ""
    for call in (CallPiece("elsewhere", "{}"), CallPiece("stop_all", '{"a": 1}')):
        assert not fits(constraint, before + MarkupFormat(spec).write([call], tail="text"))
    assert not fits(constraint, "Hello.")
    assert not fits(constraint, "")


@calling
def test_a_named_tool_is_the_only_one(spec: FormatSpec) -> None:
    constraint = forced(spec, NamedTool("stop_all"))
    frame = spec.frame
    before = frame.close if frame is not None and frame.with_calls else ""
    assert fits(constraint, before + MarkupFormat(spec).write([NONE], tail="text"))
    assert not fits(constraint, before + MarkupFormat(spec).write([FEW], tail="text"))


@pytest.mark.parametrize(
    "name",
    [
        "qwen3_coder",
        "minimax_m2",
        "glm45",
        "deepseek_v32",
        "kimi_k3",
        "gemma4",
        "pythonic",
        "cohere_command5",
    ],
)
def test_parameters_keep_their_schema(name: str) -> None:
    constraint = forced(BY_NAME[name], NamedTool("get_weather"))
    before = "<|close|>response<|sep|>" if name == "kimi_k3" else ""

    def allowed(arguments: dict[str, Any]) -> bool:
        call = CallPiece("get_weather", json.dumps(arguments))
        return fits(constraint, before + MarkupFormat(BY_NAME[name]).write([call], tail="text"))

    assert allowed({"city": "Oslo", "days": 3})
    assert not allowed({"city": "Oslo"})
    assert not allowed({"city": "Oslo", "days": "three"})
    assert not allowed({"city": "Oslo", "days": 3, "other": 1})
    if name != "pythonic":  # there the JSON schema says it, which is not validated here
        assert not allowed({"city": "Oslo", "days": 3, "unit": "k"})


@calling
def test_strict_tools_hold_whenever_the_model_calls(spec: FormatSpec) -> None:
    strict = ToolDefinition(name="get_weather", parameters=SCHEMA, strict=True)
    turn = Turn(items=(), tools=[strict])
    if spec.name in ("pythonic", "llama4_pythonic"):
        with pytest.raises(Unsupported) as caught:
            MarkupFormat(spec).constraint(turn, tail="text")
        assert caught.value.param == "tools"
        return
    constraint = MarkupFormat(spec).constraint(turn, tail="text")
    assert isinstance(constraint, Triggered)
    written = MarkupFormat(spec).write([FEW], tail="text")
    assert written.startswith(constraint.trigger)
    assert fits(constraint.body, written)


@pytest.mark.parametrize("name", ["qwen3_coder", "minimax_m2", "glm45"])
def test_parameters_that_no_schema_lists_are_free_unless_the_tool_is_strict(name: str) -> None:
    schema = {"type": "object", "anyOf": [{"required": ["a"]}]}
    loose = Turn(
        items=(), tools=[ToolDefinition(name="f", parameters=schema)], tool_choice="required"
    )
    constraint = MarkupFormat(BY_NAME[name]).constraint(loose, tail="text")
    assert constraint is not None
    assert fits(
        constraint, MarkupFormat(BY_NAME[name]).write([CallPiece("f", '{"a": 1}')], tail="text")
    )
    strict = ToolDefinition(name="f", parameters=schema, strict=True)
    with pytest.raises(Unsupported):
        MarkupFormat(BY_NAME[name]).constraint(Turn(items=(), tools=[strict]), tail="text")


@pytest.mark.parametrize("name", ["pythonic", "gemma4", "minimax_m3", "cohere_command5"])
def test_what_a_syntax_cannot_hold_is_refused(name: str) -> None:
    tool = ToolDefinition(name="f", parameters={"type": "object", "additionalProperties": True})
    turn = Turn(items=(), tools=[tool], tool_choice="required")
    with pytest.raises(Unsupported) as caught:
        MarkupFormat(BY_NAME[name]).constraint(turn, tail="text")
    assert caught.value.param == "tools"


def test_the_text_of_a_custom_tool_keeps_its_pattern() -> None:
    tool = ToolDefinition(name="f", kind="custom", grammar=Regex("a|b"))
    for name in ("qwen3_coder", "glm45", "gemma4"):
        turn = Turn(items=(), tools=[tool], tool_choice="required", parallel_tool_calls=False)
        constraint = MarkupFormat(BY_NAME[name]).constraint(turn, tail="text")
        assert constraint is not None
        for text, good in (("a", True), ("c", False)):
            call = CallPiece("f", json.dumps({"input": text}))
            assert fits(constraint, MarkupFormat(BY_NAME[name]).write([call], tail="text")) is good


@pytest.mark.parametrize("spec", FORMATS, ids=lambda spec: spec.name)
def test_structured_text_stands_in_the_familys_frame(spec: FormatSpec) -> None:
    turn = Turn(items=(), text_format=TextFormat(kind="json_schema", schema={"type": "object"}))
    constraint = MarkupFormat(spec).constraint(turn, tail="text")
    assert constraint is not None
    frame = spec.frame
    opening = frame.open if frame is not None and not frame.with_calls else ""
    assert fits(constraint, opening + '{"a": 1}' + (frame.close if frame is not None else ""))


def test_values_in_value_tags_are_held_member_by_member() -> None:
    schema = {
        "type": "object",
        "properties": {
            "o": {
                "type": "object",
                "properties": {"l": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
                "required": ["l"],
            },
            "d": {"type": "object"},
        },
        "required": ["o"],
    }
    format_ = MarkupFormat(BY_NAME["cohere_command5"])
    tool = ToolDefinition(name="f", parameters=schema)
    constraint = format_.constraint(
        Turn(items=(), tools=[tool], tool_choice="required"), tail="text"
    )
    assert constraint is not None

    def allowed(arguments: dict[str, Any]) -> bool:
        return fits(constraint, format_.write([CallPiece("f", json.dumps(arguments))], tail="text"))

    assert allowed({"o": {"l": []}})
    assert allowed({"o": {"l": [1, 2]}})
    assert not allowed({"o": {"l": [1, 2, 3]}})
    assert not allowed({"o": {"l": ["1"]}})
    assert not allowed({"o": {}})
    written = format_.write([CallPiece("f", '{"o": {"l": []}}')], tail="text")
    unlisted = '<cofl:value name="d" type="json">{"x": [1]}</cofl:value></cofl:tool_call>'
    assert fits(constraint, written.replace("</cofl:tool_call>", unlisted))


def test_schemas_that_multiply_themselves_are_held_to_some_depth_only() -> None:
    many = {f"p{number}": {"$ref": "#/$defs/o"} for number in range(100)}
    node = {"type": "object", "properties": many}
    schema = {"type": "object", "properties": many, "$defs": {"o": node}}
    turn = Turn(
        items=(), tools=[ToolDefinition(name="f", parameters=schema)], tool_choice="required"
    )
    constraint = MarkupFormat(BY_NAME["cohere_command5"]).constraint(turn, tail="text")
    assert str(constraint).count("JsonSchema(") < 500
