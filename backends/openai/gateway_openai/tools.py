"""Converts tools, tool choices and text formats for both APIs."""

from __future__ import annotations

from typing import Any

from gateway.sdk import NamedTool, TextFormat, ToolDefinition, Turn, Unsupported
from gateway.sdk.constraints import Grammar, Regex
from gateway_openai.config import OpenAIConfig

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def tool_fields(turn: Turn, config: OpenAIConfig) -> dict[str, Any]:
    """`tools`, `tool_choice` and `parallel_tool_calls`. Raises `Unsupported`."""
    if not turn.tools:
        return {}
    if not config.takes.tools:
        raise Unsupported("The upstream of this model does not support tools.", param="tools")
    _refuse_grammars(turn, config)
    fields: dict[str, Any] = {"tools": [_tool(tool, config) for tool in turn.tools]}
    match turn.tool_choice:
        case "auto":
            pass
        case "none" | "required" as choice:
            fields["tool_choice"] = choice
        case NamedTool(name):
            fields["tool_choice"] = _choice(name, turn, config)
    if not turn.parallel_tool_calls and config.takes.parallel_tools:
        fields["parallel_tool_calls"] = False
    return fields


def format_fields(wanted: TextFormat, config: OpenAIConfig) -> dict[str, Any]:
    """The text format as `response_format` or `text`. Raises `Unsupported`."""
    if wanted.kind == "text":
        return {}
    known = config.takes.json_schema if wanted.kind == "json_schema" else config.takes.json_object
    if not known:
        raise Unsupported(
            f"The upstream of this model does not support text formats of type '{wanted.kind}'.",
            param=("text", "format"),
        )
    chat = config.api == "chat"
    form: dict[str, Any] = {"type": wanted.kind}
    if wanted.kind == "json_schema":
        schema: dict[str, Any] = {"name": wanted.name or "answer", "schema": wanted.schema or {}}
        if wanted.description:
            schema["description"] = wanted.description
        if wanted.strict or not chat:
            schema["strict"] = wanted.strict
        form |= {"json_schema": schema} if chat else schema
    return {"response_format": form} if chat else {"text": {"format": form}}


def with_strict(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools of the Responses API where each function says whether it is strict."""
    return [
        {**tool, "strict": False} if tool["type"] == "function" and "strict" not in tool else tool
        for tool in tools
    ]


def is_custom(tool: ToolDefinition, config: OpenAIConfig) -> bool:
    """Whether a custom tool is sent as such, and not as a function."""
    return tool.kind == "custom" and config.custom_tools


def _tool(tool: ToolDefinition, config: OpenAIConfig) -> dict[str, Any]:
    chat = config.api == "chat"
    body: dict[str, Any] = {"name": tool.name}
    description = tool.description or ""
    if is_custom(tool, config):
        kind = "custom"
        if (grammar := _grammar(tool)) is not None:
            body["format"] = (
                {"type": "grammar", "grammar": grammar} if chat else {"type": "grammar", **grammar}
            )
    else:
        kind = "function"
        body["parameters"] = tool.parameters or NO_ARGUMENTS
        if tool.strict is not None:
            body["strict"] = tool.strict
        if tool.kind == "custom" and (grammar := _grammar(tool)) is not None:
            description += (
                f"\n\nThe input must fit this {grammar['syntax']} grammar:\n{grammar['definition']}"
            )
    if description:
        body["description"] = description
    return {"type": kind, kind: body} if chat else {"type": kind, **body}


def _grammar(tool: ToolDefinition) -> dict[str, str] | None:
    match tool.grammar:
        case Grammar(syntax, definition):
            return {"syntax": syntax, "definition": definition}
        case Regex(pattern):
            return {"syntax": "regex", "definition": pattern}
        case _:
            return None


def _refuse_grammars(turn: Turn, config: OpenAIConfig) -> None:
    """Raise `Unsupported` if a call whose grammar cannot be enforced is required.

    Upstreams enforce grammars only on custom tools. Where the call is optional, the grammar is in the description only.
    """
    choice = turn.tool_choice
    if config.custom_tools or choice in ("auto", "none"):
        return
    for tool in turn.tools:
        forced = choice == "required" or choice == NamedTool(tool.name)
        if forced and tool.grammar is not None:
            raise Unsupported(
                f"The upstream of this model cannot enforce the grammar of the tool '{tool.name}'. Leave the grammar out, "
                "or let the model choose.",
                param="tool_choice",
            )


def _choice(name: str, turn: Turn, config: OpenAIConfig) -> dict[str, Any]:
    custom = any(tool.name == name and is_custom(tool, config) for tool in turn.tools)
    kind = "custom" if custom else "function"
    if config.api == "chat":
        return {"type": kind, kind: {"name": name}}
    return {"type": kind, "name": name}
