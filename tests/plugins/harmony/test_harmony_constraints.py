"""Tool choices and text formats, as constraints on the output and as what the parser then reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.base.constraints import Constraint, Grammar, JsonSchema, Regex, Sequence, Triggered
from gateway.base.errors import InvalidRequest
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import (
    CallPiece,
    EngineOutput,
    ModelInfo,
    NamedTool,
    ParserContext,
    Tail,
    TextFormat,
    ToolDefinition,
    Turn,
)
from gateway_harmony import HarmonyFormat, HarmonyRenderer, RendererConfig, gateway_model_profile
from gateway_scripted.instances import minimal_text
from gateway_testing.reading import Block, blocks

FORMAT = HarmonyFormat()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
F = ToolDefinition(name="f", parameters=SCHEMA)
G = ToolDefinition(name="g")
STRICT = ToolDefinition(name="s", parameters=SCHEMA, strict=True)
PYTHON = ToolDefinition(name="python", kind="builtin")
JSON = TextFormat(kind="json_schema", name="x", schema=SCHEMA)


def turn(*tools: ToolDefinition, **more: Any) -> Turn:
    return Turn(items=(), tools=tools, **more)


def minimal(asked: Turn, tail: Tail = "unknown", prefill: str = "") -> list[Block]:
    """What the parser reads in the least that the constraint allows."""
    constraint = FORMAT.constraint(asked, tail=tail)
    assert constraint is not None
    tools = {tool.name: tool for tool in asked.tools}
    parser = FORMAT.parser(ParserContext(tail=tail, tools=tools))
    deltas = [*parser.feed(EngineOutput(text=prefill + minimal_text(constraint)))]
    deltas += parser.finish("stop")
    assert parser.recoveries == 0
    return blocks(deltas)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (turn(F, G, tool_choice="required"), Block("call", '{"a": 0}', "f")),
        (turn(F, G, tool_choice=NamedTool("g")), Block("call", "{}", "g")),
        (turn(F, PYTHON, tool_choice=NamedTool("python")), Block("call", "", "python")),
        (turn(F, text_format=JSON, tool_choice="none"), Block("text", '{"a": 0}')),
        (turn(text_format=JSON), Block("text", '{"a": 0}')),
        (turn(F, text_format=JSON), Block("text", '{"a": 0}')),
        (turn(text_format=TextFormat(kind="json_object")), Block("text", "{}")),
    ],
)
def test_what_a_constraint_allows_is_what_was_asked_for(asked: Turn, expected: Block) -> None:
    assert minimal(asked) == [expected]
    assert minimal(asked, "reasoning") == [expected]


def test_a_message_that_is_continued_is_json_from_where_it_stands() -> None:
    assert FORMAT.constraint(turn(F, text_format=JSON), tail="text") == JsonSchema(SCHEMA)


def test_nothing_is_constrained_where_nothing_was_asked_for() -> None:
    assert FORMAT.constraint(turn(F, G), tail="unknown") is None
    assert FORMAT.constraint(turn(F, tool_choice="none"), tail="unknown") is None


def test_strict_tools_are_held_to_their_schema_where_the_model_may_choose() -> None:
    constraint = FORMAT.constraint(turn(STRICT, F), tail="unknown")
    assert isinstance(constraint, Triggered)
    assert minimal_text(constraint.body).startswith(constraint.trigger)
    assert JsonSchema(SCHEMA) in list(leaves(constraint))


def test_with_built_in_tools_only_the_final_message_is_constrained() -> None:
    constraint = FORMAT.constraint(turn(PYTHON, text_format=JSON), tail="unknown")
    assert isinstance(constraint, Triggered)
    assert constraint.trigger == "<|channel|>final<|message|>"


def test_a_call_that_the_prompt_begins_is_constrained_from_there(gpt_oss: ModelContext) -> None:
    asked = turn(F, tool_choice=NamedTool("f"), reasoning_effort="none")
    prefill = HarmonyRenderer(RendererConfig(), gpt_oss).render(asked).prefill
    assert FORMAT.constraint(asked, tail="unknown") == JsonSchema(SCHEMA)
    assert minimal(asked, prefill=prefill) == [Block("call", '{"a": 0}', "f")]


def test_markers_that_engines_stop_at_are_left_out() -> None:
    """Engines take them for the end of the output, and refuse them inside a grammar."""
    for asked in (turn(F, G, tool_choice="required"), turn(STRICT), turn(F, text_format=JSON)):
        constraint = FORMAT.constraint(asked, tail="unknown")
        assert constraint is not None
        assert "<|call|>" not in repr(constraint)
        assert "<|return|>" not in repr(constraint)


def leaves(constraint: Constraint) -> list[Any]:
    match constraint:
        case Sequence(parts):
            return [leaf for part in parts for leaf in leaves(part)]
        case Triggered(_, body):
            return leaves(body)
        case _ if hasattr(constraint, "options"):
            return [leaf for option in constraint.options for leaf in leaves(option)]
        case _ if hasattr(constraint, "body"):
            return leaves(constraint.body)
    return [constraint]


def test_a_custom_tools_pattern_holds_inside_the_json() -> None:
    patterned = ToolDefinition(name="c", kind="custom", grammar=Regex("[0-9]{3}"))
    (found,) = minimal(turn(patterned, tool_choice="required"))
    assert json.loads(found.text) == {"input": "000"}
    lark = ToolDefinition(name="c", kind="custom", grammar=Grammar("lark", "start: /a/"))
    assert FORMAT.constraint(turn(lark), tail="unknown") is None


def test_choices_that_cannot_be_met_are_refused() -> None:
    for asked in (turn(tool_choice="required"), turn(F, tool_choice=NamedTool("other"))):
        with pytest.raises(InvalidRequest) as refused:
            FORMAT.constraint(asked, tail="unknown")
        assert refused.value.param == "tool_choice"


def test_built_in_calls_are_written_to_their_own_address() -> None:
    assert FORMAT.write([CallPiece("python", "1+1")]).startswith("<|channel|>analysis to=python ")
    assert "to=functions.python_run " in FORMAT.write([CallPiece("python_run", "{}")])


@pytest.mark.parametrize(
    "info",
    [
        ModelInfo(name="m", engine="e", model_type="gpt_oss"),
        ModelInfo(name="m", engine="e", architecture="GptOssForCausalLM"),
        ModelInfo(name="m", engine="e", architecture="gpt-oss"),
        ModelInfo(name="m", engine="e", chat_template="{{ '<|channel|>' }}{{ '<|message|>' }}"),
    ],
)
def test_models_of_the_family_are_known(info: ModelInfo) -> None:
    profile = gateway_model_profile(info)
    assert profile is not None
    assert (profile.renderer, profile.parser) == ("harmony", "harmony")


def test_other_models_are_left_to_others() -> None:
    info = ModelInfo(name="m", engine="e", model_type="qwen3", chat_template="<|im_start|>")
    assert gateway_model_profile(info) is None
