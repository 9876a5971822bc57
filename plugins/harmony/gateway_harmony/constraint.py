"""Tool choices and text formats as constraints on the raw output.

The markers that end a message at the end of an output (`<|return|>`, `<|call|>`) are left out: they are what the engine
stops at, and engines allow those by themselves once the rest is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from gateway.constraints import (
    Const,
    Constraint,
    FreeText,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
    Triggered,
)
from gateway.constraints import Sequence as InOrder
from gateway.errors import InvalidRequest
from gateway.protocols.prompt import NamedTool, Tail, TextFormat, ToolDefinition, Turn
from gateway_harmony.calls import PYTHON, call_header, forced_header, is_built_in
from gateway_harmony.markers import CHANNEL, CONSTRAIN, END, MESSAGE, START

# Each without the `<|channel|>` that it begins with.
_FINAL = f"final{MESSAGE}"
_ANALYSIS = f"analysis{MESSAGE}"
_NEXT = f"{START}assistant"

Answer: TypeAlias = tuple[Constraint, ...]
"""What may come after thinking: one of these, behind a `<|channel|>`."""


def constraint(turn: Turn, tail: Tail) -> Constraint | None:
    """What the output of `turn` must look like; None: anything. See `OutputFormat.constraint`."""
    text = _text(turn.text_format)
    if tail == "text":
        # A final message is continued, and nothing else can follow.
        return text
    choice = turn.tool_choice
    match choice:
        case "none":
            return None if text is None else _after_thinking((_final(text),), tail)
        case NamedTool(name):
            named = [tool for tool in turn.tools if tool.name == name]
            if not named:
                raise InvalidRequest(
                    f"tool_choice names {name!r}, which is not among the tools.",
                    param="tool_choice",
                )
            if forced_header(turn):
                return _arguments(named[0])
            return _after_thinking(_calls(named), tail)
        case "required":
            if not turn.tools:
                raise InvalidRequest(
                    "tool_choice is 'required', but there are no tools.", param="tool_choice"
                )
            return _after_thinking(_calls(turn.tools), tail)
        case "auto":
            return _free_choice(turn, text, tail)


def _free_choice(turn: Turn, text: Constraint | None, tail: Tail) -> Constraint | None:
    functions = [tool for tool in turn.tools if not is_built_in(tool)]
    if text is None:
        if not any(tool.strict or isinstance(tool.grammar, Regex) for tool in functions):
            return None
        trigger = f"{CHANNEL}commentary to=functions."
        return _triggered(trigger, _calls(functions, schemas=False))
    if len(functions) < len(turn.tools):
        # Built-in tools are called as often as the model likes, in the middle of its reasoning.
        return _triggered(f"{CHANNEL}{_FINAL}", (_final(text),))
    if not functions:
        return _after_thinking((_final(text),), tail)
    return _after_thinking((_final(text), *_calls(functions, schemas=False)), tail)


def _triggered(trigger: str, answer: Answer) -> Constraint:
    """Each option as one that begins with all of the trigger's text, in one piece: engines look no further."""
    return Triggered(trigger=trigger, body=_one_of(tuple(map(_addressed, answer))))


def _addressed(option: Constraint) -> Constraint:
    match option:
        case InOrder((Const(header), *rest)):
            return InOrder((Const(CHANNEL + header), *rest))
    raise TypeError("an answer begins with its header")


def _after_thinking(answer: Answer, tail: Tail) -> Constraint:
    """`answer`, before which the model may think in one message.

    The two ways part as late as they can: so every engine's grammar knows at each token where it is. That a forced call
    cannot have a preamble is the price.
    """
    begun = _one_of(answer)
    if tail == "reasoning":
        return InOrder((FreeText(until=END), Const(f"{_NEXT}{CHANNEL}"), begun))
    thinking = (Const(_ANALYSIS), FreeText(until=END), Const(f"{_NEXT}{CHANNEL}"), begun)
    return InOrder((Const(CHANNEL), OneOf((*answer, InOrder(thinking)))))


def _final(text: Constraint) -> Constraint:
    return InOrder((Const(_FINAL), text))


def _calls(tools: Sequence[ToolDefinition], *, schemas: bool = True) -> Answer:
    return tuple(_call(tool, schema=schemas or tool.strict) for tool in tools)


def _call(tool: ToolDefinition, *, schema: bool) -> Constraint:
    header = call_header(tool.name, built_in=is_built_in(tool)).removeprefix(CHANNEL)
    # Without `<|constrain|>`, which the models leave out as well: xgrammar (0.2.8) mixes up special tokens where
    # different ones may follow a text, and then lets through one that it refuses.
    return InOrder((Const(header.replace(CONSTRAIN, "")), _arguments(tool, schema=schema)))


def _one_of(answer: Answer) -> Constraint:
    return answer[0] if len(answer) == 1 else OneOf(answer)


def _arguments(tool: ToolDefinition, *, schema: bool = True) -> Constraint:
    if tool.name == PYTHON and is_built_in(tool):
        return FreeText()
    if tool.kind == "custom":
        return JsonSchema(_input_schema(tool))
    if tool.parameters is None:
        return JsonObject() if is_built_in(tool) else Const("{}")
    if not schema or not tool.parameters:
        return JsonObject()
    return JsonSchema({"type": "object", **tool.parameters})


def _input_schema(tool: ToolDefinition) -> dict[str, Any]:
    """A custom tool is told as a function of one string. A regex holds inside that string; a lark grammar cannot, and is
    left to the model, which reads it in the tool's description: Codex sends one with every request.
    """
    text: dict[str, Any] = {"type": "string"}
    if isinstance(tool.grammar, Regex):
        text["pattern"] = f"^(?:{tool.grammar.pattern})$"
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def _text(text_format: TextFormat) -> Constraint | None:
    match text_format.kind:
        case "text":
            return None
        case "json_object":
            return JsonObject()
        case "json_schema":
            return JsonSchema(text_format.schema) if text_format.schema else JsonObject()
