"""Converts tool choices and text formats to constraints on the raw output.

The markers that end a message at the end of an output (`<|return|>`, `<|call|>`) are omitted: engines stop at them, and
allow them once the rest is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gateway.sdk import InvalidRequest, NamedTool, Tail, ToolDefinition, Turn
from gateway.sdk.constraints import (
    Const,
    Constraint,
    FreeText,
    OneOf,
    Regex,
    Triggered,
    arguments_constraint,
    text_constraint,
)
from gateway.sdk.constraints import Sequence as InOrder
from gateway_harmony.calls import PYTHON, call_header, forced_header, is_built_in
from gateway_harmony.markers import CHANNEL, CONSTRAIN, END, MESSAGE, START

# Each without its leading `<|channel|>`.
_FINAL = f"final{MESSAGE}"
_ANALYSIS = f"analysis{MESSAGE}"
_NEXT = f"{START}assistant"

Answer: TypeAlias = tuple[Constraint, ...]
"""The alternatives that may follow reasoning, after a `<|channel|>`."""


def constraint(turn: Turn, tail: Tail) -> Constraint | None:
    """The constraint on the output of `turn`; None if unconstrained. See `OutputFormat.constraint`."""
    text = text_constraint(turn.text_format)
    if tail == "text":
        # A final message is being continued, and nothing else can follow it.
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
        # Built-in tools may be called any number of times within the reasoning.
        return _triggered(f"{CHANNEL}{_FINAL}", (_final(text),))
    if not functions:
        return _after_thinking((_final(text),), tail)
    return _after_thinking((_final(text), *_calls(functions, schemas=False)), tail)


def _triggered(trigger: str, answer: Answer) -> Constraint:
    """Triggered options, each starting with the whole trigger text as one constant, because engines inspect only
    that."""
    return Triggered(trigger=trigger, body=_one_of(tuple(map(_with_recipient, answer))))


def _with_recipient(option: Constraint) -> Constraint:
    match option:
        case InOrder((Const(header), *rest)):
            return InOrder((Const(CHANNEL + header), *rest))
    raise TypeError("an answer begins with its header")


def _after_thinking(answer: Answer, tail: Tail) -> Constraint:
    """`answer`, optionally preceded by one reasoning message.

    The two alternatives diverge as late as possible, so that every engine's grammar is deterministic at each token. As
    a consequence a forced call cannot have a preamble.
    """
    begun = _one_of(answer)
    if tail == "reasoning":
        return InOrder((FreeText(until=END), Const(f"{_NEXT}{CHANNEL}"), begun))
    thinking = (Const(_ANALYSIS), FreeText(until=END), Const(f"{_NEXT}{CHANNEL}"), begun)
    return InOrder((Const(CHANNEL), OneOf((*answer, InOrder(thinking)))))


def _final(text: Constraint) -> Constraint:
    return InOrder((Const(_FINAL), text))


def _calls(tools: Sequence[ToolDefinition], *, schemas: bool = True) -> Answer:
    return tuple(_call(tool, schema=schemas or bool(tool.strict)) for tool in tools)


def _call(tool: ToolDefinition, *, schema: bool) -> Constraint:
    header = call_header(tool.name, built_in=is_built_in(tool)).removeprefix(CHANNEL)
    # `<|constrain|>` is omitted, as the models may do too. xgrammar (0.2.8) confuses special tokens where different
    # ones may follow a text, and then accepts one that it should reject.
    return InOrder((Const(header.replace(CONSTRAIN, "")), _arguments(tool, schema=schema)))


def _one_of(answer: Answer) -> Constraint:
    return answer[0] if len(answer) == 1 else OneOf(answer)


def _arguments(tool: ToolDefinition, *, schema: bool = True) -> Constraint:
    if tool.name == PYTHON and is_built_in(tool):
        return FreeText()
    return arguments_constraint(tool, schema=schema)
