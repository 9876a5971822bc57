"""How calls are addressed: which tools are functions, which are built in, and what stands in a call's header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.protocols.prompt import NamedTool, ToolDefinition, Turn
from gateway_harmony.markers import CHANNEL, CONSTRAIN, MESSAGE

PYTHON: Final = "python"
_FAMILIES: Final = frozenset({PYTHON, "browser", "container"})


def is_family_name(name: str) -> bool:
    """Whether the models know a tool of this name by themselves: `python`, `browser.search`, `container.exec`."""
    return name == PYTHON or ("." in name and name.partition(".")[0] in _FAMILIES)


def is_built_in(tool: ToolDefinition) -> bool:
    """Whether the tool is told of in the system message, and not as a function."""
    return tool.kind == "builtin" and (is_family_name(tool.name) or tool.name in _FAMILIES)


def call_header(name: str, *, built_in: bool) -> str:
    """What stands between `<|start|>assistant` and a call's arguments, as the models write it."""
    if not built_in:
        return f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}"
    if name == PYTHON:
        return f"{CHANNEL}analysis to={name} code{MESSAGE}"
    return f"{CHANNEL}analysis to={name} {CONSTRAIN}json{MESSAGE}"


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
    return "" if tool is None else call_header(tool.name, built_in=is_built_in(tool))


def tool_name(recipient: str, tools: Mapping[str, ToolDefinition]) -> str:
    """The tool that a recipient means: functions are in the namespace `functions`, built-in tools stand by themselves."""
    if recipient in tools:
        return recipient
    name = recipient.removeprefix("functions.")
    if name in tools or not tools:
        return name
    for guess in (name.replace(".", "__"), name.rpartition(".")[2]):
        if guess in tools:
            return guess
    return name
