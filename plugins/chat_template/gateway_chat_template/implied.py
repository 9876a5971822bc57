"""Template variables that follow from a request's parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from gateway.sdk import NamedTool, TextFormat, ToolChoice, Turn
from gateway_chat_template.marked_text import JsonObject, OutsideText, mark_outside

_WITHOUT_THINKING: Final = ("none", "minimal")
_SWITCHES: Final[Mapping[str, Callable[[bool], Any]]] = {
    "enable_thinking": bool,
    "thinking": bool,
    "thinking_mode": lambda thinks: "enabled" if thinks else "disabled",
    "thinking_option": lambda thinks: "on" if thinks else "off",
}
"""Variables that switch reasoning on and off, as the families call them, and what they take."""
_LEVELS: Final = ("low", "high", "max")
_THINKING_EFFORTS: Final[Mapping[str, str]] = {"medium": "high", "xhigh": "max"}
"""What is nearest to an effort for templates with `thinking_effort`, which know only low, high and max."""


def implied(turn: Turn, names: Collection[str]) -> dict[str, Any]:
    """The variables among `names` that follow from the effort, the thinking budget, the tool choice and the text format of a turn.
    What the request sets itself takes precedence; of several names for reasoning, one sets the others."""
    values: dict[str, Any] = {}
    thinks = _thinks(turn)
    if thinks is not None:
        values.update((name, write(thinks)) for name, write in _SWITCHES.items())
    effort = turn.reasoning_effort
    if effort is not None:
        values["reasoning_effort"] = OutsideText(effort)
        if effort in _WITHOUT_THINKING:
            values["reasoning_strength"] = "low"
        else:
            values["reasoning_strength"] = OutsideText(effort)
            level = _THINKING_EFFORTS.get(effort, effort)
            values["thinking_effort"] = level if level in _LEVELS else OutsideText(effort)
    if turn.thinking_budget is not None:
        values["thinking_budget"] = turn.thinking_budget
    elif thinks is False:
        values["thinking_budget"] = 0
    if turn.tools and turn.tool_choice != "auto":
        values["tool_choice"] = _tool_choice(turn.tool_choice)
    if turn.text_format.kind != "text":
        values["response_format"] = _response_format(turn.text_format)
    return {name: value for name, value in values.items() if name in names}


def _thinks(turn: Turn) -> bool | None:
    """Whether the model is to think; None if the request does not say."""
    for name in ("enable_thinking", "thinking"):
        asked = turn.chat_template_kwargs.get(name)
        if isinstance(asked, bool):
            return asked
    effort = turn.reasoning_effort
    return None if effort is None else effort not in _WITHOUT_THINKING


def _tool_choice(choice: ToolChoice) -> Any:
    """In the form of Chat Completions."""
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": OutsideText(choice.name)}}
    return choice


def _response_format(wanted: TextFormat) -> JsonObject:
    """In the form of Chat Completions."""
    if wanted.kind != "json_schema":
        return JsonObject(type=wanted.kind)
    inner: dict[str, Any] = {"name": wanted.name or "answer"}
    if wanted.description is not None:
        inner["description"] = wanted.description
    inner |= {"schema": wanted.schema or {}, "strict": wanted.strict}
    return JsonObject(type=wanted.kind, json_schema=JsonObject(mark_outside(inner)))
