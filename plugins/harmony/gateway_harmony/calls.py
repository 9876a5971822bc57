"""Addresses of calls: functions, built-in tools and the headers of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.sdk import NamedTool, ToolDefinition, Turn
from gateway_harmony.markers import CHANNEL, CONSTRAIN, MESSAGE, Markup

PYTHON: Final = "python"
_FAMILIES: Final = frozenset({PYTHON, "browser", "container"})


def is_family_name(name: str) -> bool:
    """Whether the models were trained on a tool of this name: `python`, `browser.search`, `container.exec`."""
    return name == PYTHON or ("." in name and name.partition(".")[0] in _FAMILIES)


def is_address(recipient: str) -> bool:
    """Whether a recipient is the address of a tool, even of one that was not offered."""
    return recipient.startswith("functions.") or is_family_name(recipient)


def is_built_in(tool: ToolDefinition) -> bool:
    """Whether the tool is declared in the system message, and not as a function."""
    return tool.kind == "builtin" and (is_family_name(tool.name) or tool.name in _FAMILIES)


def call_header(name: str, *, built_in: bool) -> str:
    """The text between `<|start|>assistant` and a call's arguments, as the models write it."""
    return written(call_markup(name, built_in=built_in))


def call_markup(name: str, *, built_in: bool) -> Markup:
    """Like `call_header`, with markers separated from text."""
    if not built_in:
        return (
            (CHANNEL, f"commentary to=functions.{name} "),
            (CONSTRAIN, "json"),
            (MESSAGE, ""),
        )
    if name == PYTHON:
        return (CHANNEL, f"analysis to={name} code"), (MESSAGE, "")
    return (CHANNEL, f"analysis to={name} "), (CONSTRAIN, "json"), (MESSAGE, "")


def written(markup: Markup) -> str:
    """The text of markup."""
    return "".join(marker + text for marker, text in markup)


def forced_header(turn: Turn) -> Markup:
    """The call header that ends the prompt, so that the output is the named call's arguments; empty if there is none.

    Used if a call is named and reasoning is off, because then nothing may precede the call.
    """
    choice = turn.tool_choice
    if not isinstance(choice, NamedTool) or turn.reasoning_effort != "none":
        return ()
    if turn.continue_final_message or not turn.add_generation_prompt:
        return ()
    tool = next((tool for tool in turn.tools if tool.name == choice.name), None)
    return () if tool is None else call_markup(tool.name, built_in=is_built_in(tool))


def tool_name(recipient: str, tools: Mapping[str, ToolDefinition]) -> str:
    """The tool that a recipient refers to. Functions are in the namespace `functions`; built-in tools have none."""
    if recipient in tools:
        return recipient
    name = recipient.removeprefix("functions.")
    if name in tools or not tools:
        return name
    for guess in (name.replace(".", "__"), name.rpartition(".")[2]):
        if guess in tools:
            return guess
    return name
