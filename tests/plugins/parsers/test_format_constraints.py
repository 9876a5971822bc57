"""What a request's tool choice and text format ask of the raw output."""

from __future__ import annotations

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
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.protocols import NamedTool, TextFormat, ToolDefinition, Turn

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
F = ToolDefinition(name="f", parameters=SCHEMA)
G = ToolDefinition(name="g")
JSON = TextFormat(kind="json_schema", schema=SCHEMA)
THOUGHT = InOrder((FreeText(until="</think>"), Const("\n\n")))


def call(name: str, arguments: Constraint) -> Constraint:
    opening = Const(f'<tool_call>\n{{"name": "{name}", "arguments": ')
    return InOrder((opening, arguments, Const("}\n</tool_call>")))


CALL_F = call("f", JsonSchema(SCHEMA))
CALL_G = Const('<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>')


def asked(reading: Any, *, tail: Any = "text", name: str = "qwen3", **turn: Any) -> Any:
    return reading.format_of(name).constraint(Turn(items=(), **turn), tail=tail)


def several(body: Constraint) -> Constraint:
    return InOrder((body, Repeat(InOrder((Const("\n"), body)), min=0)))


def test_nothing_is_asked_where_nothing_is_promised(reading: Any) -> None:
    assert asked(reading) is None
    assert asked(reading, tools=[F]) is None
    assert asked(reading, tools=[F], tool_choice="none", tail="reasoning") is None


def test_required_means_one_call_or_more(reading: Any) -> None:
    either = OneOf((CALL_F, CALL_G))
    assert asked(reading, tools=[F, G], tool_choice="required") == several(either)
    single = asked(reading, tools=[F, G], tool_choice="required", parallel_tool_calls=False)
    assert single == either


def test_a_named_tool_is_called_once(reading: Any) -> None:
    assert asked(reading, tools=[F, G], tool_choice=NamedTool("g")) == CALL_G
    with pytest.raises(InvalidRequest) as caught:
        asked(reading, tools=[F], tool_choice=NamedTool("h"))
    assert caught.value.param == "tool_choice"


def test_thinking_is_free_and_comes_before(reading: Any) -> None:
    required: dict[str, Any] = {"tools": [F], "tool_choice": NamedTool("f")}
    assert asked(reading, tail="reasoning", **required) == InOrder((THOUGHT, CALL_F))
    maybe = Repeat(InOrder((Const("<think>"), *THOUGHT.parts)), min=0, max=1)
    assert asked(reading, tail="unknown", **required) == InOrder((maybe, CALL_F))
    assert asked(reading, text_format=JSON, tail="unknown", name="deepseek_r1") == InOrder(
        (THOUGHT, JsonSchema(SCHEMA))
    )


def test_structured_text(reading: Any) -> None:
    assert asked(reading, text_format=JSON) == JsonSchema(SCHEMA)
    assert asked(reading, text_format=TextFormat(kind="json_object"), name="plain") == JsonObject()
    either = asked(reading, text_format=JSON, tools=[F], parallel_tool_calls=False)
    assert either == OneOf((JsonSchema(SCHEMA), call("f", JsonObject())))


def test_strict_tools_hold_whenever_the_model_calls(reading: Any) -> None:
    strict = ToolDefinition(name="f", parameters=SCHEMA, strict=True)
    loose = ToolDefinition(name="h", parameters=SCHEMA)
    expected = Triggered("<tool_call>", OneOf((CALL_F, call("h", JsonObject()))))
    assert asked(reading, tools=[strict, loose]) == expected
    assert asked(reading, tools=[strict, loose], tail="reasoning") == expected


def test_custom_tools_take_their_text_as_a_string(reading: Any) -> None:
    free = ToolDefinition(name="f", kind="custom")
    found = asked(reading, tools=[free], tool_choice="required", parallel_tool_calls=False)
    assert found.parts[1].schema["properties"] == {"input": {"type": "string"}}
    shaped = ToolDefinition(name="f", kind="custom", grammar=Regex("a|b"))
    found = asked(reading, tools=[shaped])
    assert found.body.parts[1].schema["properties"]["input"]["pattern"] == "^(?:a|b)$"
    lark = ToolDefinition(name="f", kind="custom", grammar=Grammar("lark", "start: "))
    assert asked(reading, tools=[lark]) is None
    found = asked(reading, tools=[lark], tool_choice="required", parallel_tool_calls=False)
    assert found.parts[1].schema["properties"] == {"input": {"type": "string"}}


def test_a_format_without_calls_cannot_promise_one(reading: Any) -> None:
    with pytest.raises(Unsupported):
        asked(reading, tools=[F], tool_choice="required", name="plain")
    for name in ("plain", "deepseek_r1"):
        with pytest.raises(Unsupported) as caught:
            asked(reading, tools=[F], name=name)
        assert caught.value.param == "tools"
        assert asked(reading, tools=[F], tool_choice="none", name=name) is None
