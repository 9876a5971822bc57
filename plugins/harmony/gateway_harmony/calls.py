"""How calls are addressed: which tools are functions, which are built in, and what stands in a call's header."""

from __future__ import annotations

from typing import Final

from gateway.protocols.prompt import NamedTool, ToolDefinition, Turn
from gateway_harmony.markers import CHANNEL, CONSTRAIN, MESSAGE

PYTHON: Final = "python"
_BUILT_IN: Final = frozenset({PYTHON, "browser", "container"})


def is_built_in(name: str) -> bool:
    """Whether the model family knows a tool of this name by itself: `python`, `browser.search`, `container.exec`."""
    return name == PYTHON or (name.partition(".")[0] in _BUILT_IN and "." in name)


def recipient(name: str) -> str:
    """The address of a tool: functions are in a namespace."""
    return name if is_built_in(name) else f"functions.{name}"


def call_header(name: str) -> str:
    """What stands between `<|start|>assistant` and a call's arguments, as the models write it."""
    to = recipient(name)
    if name == PYTHON:
        return f"{CHANNEL}analysis to={to} code{MESSAGE}"
    channel = "analysis" if is_built_in(name) else "commentary"
    return f"{CHANNEL}{channel} to={to} {CONSTRAIN}json{MESSAGE}"


def forced_header(turn: Turn) -> str:
    """The header with which the prompt ends so that the output is the named call's arguments; empty: it does not.

    So where a call is named and no reasoning wanted: then nothing may come before the call.
    """
    choice = turn.tool_choice
    if not isinstance(choice, NamedTool) or turn.reasoning_effort != "none":
        return ""
    if turn.continue_final_message or not turn.add_generation_prompt:
        return ""
    tool = next((tool for tool in turn.tools if tool.name == choice.name), None)
    return "" if tool is None else call_header(tool.name)


def described(tool: ToolDefinition) -> bool:
    """Whether the model has to be told what the tool is."""
    return tool.kind != "builtin" or not is_built_in(tool.name) or tool.name.startswith("container")
