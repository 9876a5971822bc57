"""Everything that a request's output must match is measured as written, up to each limit and not beyond."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.base.errors import InvalidRequest, ParamPath
from gateway.config import SchemaLimits
from gateway.generation.error_params import TEXT_SCHEMA
from gateway.generation.schema_limits import CODE, check_limits
from gateway.plugins.protocols import TextFormat, ToolDefinition, Turn

FREE = Turn(items=[])
WORD = "wörd"  # five bytes
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2, 3]}, "b": {"anyOf": [{}, {}], "allOf": [{}]}},
    "patternProperties": {WORD: {"pattern": WORD}},
}


def of_schema(schema: Mapping[str, Any]) -> Turn:
    return Turn(items=[], text_format=TextFormat(kind="json_schema", schema=dict(schema)))


def of_tools(*tools: ToolDefinition) -> Turn:
    return Turn(items=[], tools=tools)


def refusal(
    turn: Turn,
    structure: Constraint | None = None,
    *,
    params: Mapping[str, ParamPath] = {},
    limits: Mapping[str, Any] = {},
) -> InvalidRequest | None:
    """The error with which a request is refused; None if it is not."""
    try:
        check_limits(turn, structure, params, SchemaLimits(**limits))
    except InvalidRequest as error:
        return error
    return None


SIZES: list[tuple[Constraint, str, int]] = [
    (JsonSchema(SCHEMA), "max_properties", 3),
    (JsonSchema(SCHEMA), "max_enum_values", 3),
    (JsonSchema(SCHEMA), "max_alternatives", 3),
    (JsonSchema(SCHEMA), "max_pattern_bytes", 10),
    (JsonSchema(SCHEMA), "max_bytes", len(msgspec.json.encode(SCHEMA))),
    (JsonSchema({"not": {"not": {}}}), "max_depth", 3),
    (Regex(WORD), "max_pattern_bytes", 5),
    (Grammar("lark", WORD), "max_grammar_bytes", 5),
    (OneOf((Const("a"), Regex("b"), FreeText())), "max_enum_values", 3),
    (OneOf((Const(WORD), Regex("b"))), "max_bytes", 6),
    (OneOf((Const("a"), Regex(WORD))), "max_pattern_bytes", 5),
    (Sequence((Const(WORD), JsonSchema({}), FreeText("</a>"), FreeText())), "max_bytes", 5 + 2 + 4),
    (Sequence((Regex(WORD),)), "max_pattern_bytes", 5),
    (Sequence((Repeat(Const(WORD), 0, 9), Const("a"))), "max_bytes", 6),
    (Sequence((Triggered("<é", Const(WORD)),)), "max_bytes", 3 + 5),
    (Repeat(Triggered("<", Regex(WORD)), 0, None), "max_pattern_bytes", 5),
]
"""Constraints, a limit, and their measure of it."""


@pytest.mark.parametrize(("constraint", "limit", "size"), SIZES)
def test_a_constraint_may_be_as_large_as_a_limit_and_no_larger(
    constraint: Constraint, limit: str, size: int
) -> None:
    assert refusal(FREE, constraint, limits={limit: size}) is None
    error = refusal(FREE, constraint, limits={limit: size - 1})
    assert error is not None
    assert (error.at, error.code) == (TEXT_SCHEMA, CODE)
    assert f"({limit})" in error.message
    assert str(size - 1) in error.message


@pytest.mark.parametrize(("limit", "size"), [each[1:] for each in SIZES[:5]])
def test_schemas_have_the_same_limits_wherever_they_are(limit: str, size: int) -> None:
    tool = ToolDefinition(name="f", parameters=SCHEMA)
    param = ("tools", 3, "parameters")
    for turn, at in ((of_schema(SCHEMA), TEXT_SCHEMA), (of_tools(tool), param)):
        assert refusal(turn, params={"f": param}, limits={limit: size}) is None
        error = refusal(turn, params={"f": param}, limits={limit: size - 1})
        assert error is not None
        assert (error.at, error.code) == (at, CODE)


def test_a_grammar_of_a_tool_has_its_limit() -> None:
    tool = ToolDefinition(name="f", kind="custom", grammar=Grammar("lark", WORD))
    assert refusal(of_tools(tool), limits={"max_grammar_bytes": 5}) is None
    error = refusal(of_tools(tool), limits={"max_grammar_bytes": 4})
    assert error is not None
    assert error.at == ("tools",)
    assert error.message.startswith("Tool 'f': The grammar has 5 bytes")


@given(
    st.lists(st.text("aé", min_size=1, max_size=9), max_size=4),
    st.none() | st.text("aé", min_size=1, max_size=9),
    st.none() | st.text("aé", min_size=1, max_size=9),
    st.integers(-1, 0),
    st.sampled_from([None, "ada"]),
)
def test_all_of_a_request_together_have_the_largest_size(
    tools: list[str], text: str | None, pattern: str | None, less: int, scope: str | None
) -> None:
    """The structure counts in place of the text's format."""
    turn = of_schema({"title": text}) if text else FREE
    turn = msgspec.structs.replace(
        turn,
        tools=[ToolDefinition(name=each, parameters={"title": each}) for each in tools],
        cache_scope=scope,
    )
    structure = None if pattern is None else Regex(pattern)
    size = sum(len(json.dumps({"title": each}, ensure_ascii=False).encode()) - 1 for each in tools)
    own = 0
    if pattern is not None:
        own = len(pattern.encode())
    elif text is not None:
        own = len(json.dumps({"title": text}, ensure_ascii=False).encode()) - 1
    whole = size + own
    for _ in range(2):  # the second time from what is kept
        assert refusal(turn, structure, limits={"max_bytes": max(1, whole)}) is None
    error = refusal(turn, structure, limits={"max_bytes": max(1, whole + less)})
    if not tools or not less:
        assert less or error is None
        return
    assert error is not None
    if len(tools) + (own > 0) > 1:
        assert error.at == ("tools",)
        assert "together" in error.message


def test_tools_that_passed_alone_count_with_a_structure() -> None:
    turn = of_tools(ToolDefinition(name="f", parameters={"title": "of this test"}))
    turn = msgspec.structs.replace(turn, cache_scope="ada")
    limits = {"max_bytes": 30}
    assert refusal(turn, limits=limits) is None
    assert refusal(turn, Regex("a"), limits=limits) is None
    error = refusal(turn, Regex("a" * 20), limits=limits)
    assert error is not None
    assert error.at == ("tools",)


NONSENSE = {"properties": {"a": {"type": "nonsense"}}}
PLACE = ("properties", "a", "type")


def test_a_schema_that_is_none_is_named_by_its_place() -> None:
    tool = ToolDefinition(name="f", parameters=NONSENSE)
    param = ("tools", 0, "parameters")
    inside = Sequence((Repeat(OneOf((Triggered("<", JsonSchema(NONSENSE)), Const("a"))), 0, 1),))
    for error, at, code in (
        (refusal(of_schema(NONSENSE)), TEXT_SCHEMA, "invalid_json_schema"),
        (refusal(FREE, inside), TEXT_SCHEMA, "invalid_json_schema"),
        (refusal(of_tools(tool), params={"f": param}), param, "invalid_function_parameters"),
    ):
        assert error is not None
        assert (error.at, error.code) == ((*at, *PLACE), code)
        assert "'properties.a.type'" in error.message


def test_the_structure_replaces_the_format_of_the_text() -> None:
    assert refusal(of_schema(NONSENSE), Regex("a")) is None


def test_schemas_of_tool_servers_need_not_be_valid() -> None:
    """They are measured all the same."""
    turn = of_tools(ToolDefinition(name="f", parameters=NONSENSE))
    assert refusal(turn) is None
    error = refusal(turn, limits={"max_depth": 2})
    assert error is not None
    assert (error.at, error.code) == (("tools",), CODE)


@pytest.mark.parametrize("parameters", [None, {}])
def test_a_tool_without_parameters_has_no_size(parameters: dict[str, Any] | None) -> None:
    assert (
        refusal(of_tools(ToolDefinition(name="f", parameters=parameters)), limits={"max_bytes": 1})
        is None
    )


def test_references_and_repetition_are_measured_as_written() -> None:
    large: dict[str, Any] = {"$defs": {"a": {"enum": [1, 2]}}}
    large["properties"] = {f"p{number}": {"$ref": "#/$defs/a"} for number in range(50)}
    large["items"] = {"type": "string", "minLength": 10**6}
    assert refusal(of_schema(large), limits={"max_enum_values": 2}) is None
    assert refusal(FREE, Repeat(Regex("a"), 0, 1000), limits={"max_pattern_bytes": 1}) is None
