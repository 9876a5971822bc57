"""Resolving a request's `tool_choice` to the names that the model sees."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath, Unsupported
from gateway.plugins.protocols import NamedTool, ToolChoice, ToolDefinition
from gateway.tools.client_run import CLIENT_TOOLS
from gateway.tools.roles import CallRole
from gateway.wire import tools as wire
from gateway.wire.field_errors import MAX_TOOLS, check_length


class KnownTools(Struct, frozen=True, kw_only=True):
    """The tools of one request, indexed by the properties that a tool choice can name. Values are the names that the
    model sees."""

    roles: Mapping[str, CallRole]
    """Keyed by the name that the model sees."""
    listed: Mapping[tuple[str, str], str]
    """Keyed by server label and tool name."""
    by_type: Mapping[str, Collection[str]]
    """Tools that the gateway runs, keyed by their request type."""
    omitted: Collection[str] = ()
    """Requested tool types that are not available and are therefore not offered to the model."""


def resolve_choice(
    choice: wire.ToolChoice | None, definitions: Sequence[ToolDefinition], known: KnownTools
) -> tuple[Sequence[ToolDefinition], ToolChoice]:
    """The tools from which the model may choose, and the choice in the form for the model.

    Raises `InvalidRequest` or `Unsupported` with the precise parameter.
    """
    resolved: ToolChoice
    names: Collection[str] | None = None
    match choice:
        case None:
            resolved = "auto"
        case "auto" | "none" | "required":
            resolved = choice
        case wire.AllowedToolsChoice():
            names = _allowed(choice, known)
            resolved = "required" if choice.mode == "required" else "auto"
        case wire.McpChoice(name=None):
            names = _of_server(choice.server_label, known, ("tool_choice", "server_label"))
            resolved = "required"
        case wire.McpChoice():
            name_param = ("tool_choice", "name")
            resolved = NamedTool(_of_server_named(choice, known, name_param))
        case _:
            chosen = _chosen(choice, known)
            if len(chosen) == 1:
                resolved = NamedTool(chosen[0])
            else:
                names, resolved = chosen, "required"
    if names is not None:
        definitions = [each for each in definitions if each.name in names]
    if resolved == "required" and not definitions and known.omitted:
        raise _demanded(min(known.omitted))
    if resolved == "required" and not definitions:
        raise InvalidRequest(
            "tool_choice is 'required', but no tools were given. Add tools, or leave tool_choice out.",
            param="tool_choice",
        )
    return definitions, resolved


def _demanded(kind: str) -> Unsupported:
    """The error for a choice that requires a tool that is not available."""
    return Unsupported(
        f"tool_choice demands a tool of type '{kind}', and there is none here. Leave tool_choice out, or have the server "
        "configured with a plugin that runs it.",
        param="tool_choice",
        code="unsupported_tool",
    )


def _lookup(known: KnownTools, name: str, param: ParamPath) -> str:
    if name in known.roles:
        return name
    shown = [prompt_name for prompt_name, role in known.roles.items() if role.shown_name == name]
    if len(shown) == 1:
        return shown[0]
    raise InvalidRequest(
        f"tool_choice names '{name[:100]}', which is not among the tools of this request.",
        param=param,
    )


def _of_server(label: str, known: KnownTools, param: ParamPath) -> set[str]:
    """The names that the model sees for the tools of one server."""
    names = {prompt_name for (server, _), prompt_name in known.listed.items() if server == label}
    if not names:
        raise InvalidRequest(
            f"The server '{label[:100]}' has no tools in this request.",
            param=param,
            code="invalid_value",
        )
    return names


def _of_server_named(choice: wire.McpChoice, known: KnownTools, param: ParamPath) -> str:
    prompt_name = known.listed.get((choice.server_label, choice.name or ""))
    if prompt_name is None:
        label, name = choice.server_label[:100], (choice.name or "")[:100]
        raise InvalidRequest(
            f"The server '{label}' has no tool '{name}' in this request.", param=param
        )
    return prompt_name


def _of_type(kind: Any, known: KnownTools) -> list[str]:
    """The names of the tools of a built-in type: the client's tool of that name if there is one, otherwise the
    gateway's tools."""
    if kind in CLIENT_TOOLS and kind in known.roles:
        return [kind]
    names = known.by_type.get(kind, ()) if isinstance(kind, str) else ()
    return [name for name in names if name in known.roles]


def _chosen(choice: Any, known: KnownTools) -> list[str]:
    name = wire.chosen_name(choice)
    if name is not None:
        return [_lookup(known, name, ("tool_choice", "name"))]
    kind = wire.type_of(choice)
    if names := _of_type(kind, known):
        return names
    if kind in known.omitted:
        raise _demanded(kind)
    raise Unsupported(
        f"tool_choice of type '{kind}' cannot be honoured: no such tool is among the tools of this request.",
        param="tool_choice",
    )


def _allowed(choice: wire.AllowedToolsChoice, known: KnownTools) -> set[str]:
    check_length(choice.tools, ("tool_choice", "tools"), MAX_TOOLS)
    names: set[str] = set()
    for index, entry in enumerate(choice.tools):
        param = ("tool_choice", "tools", index)
        name = entry.get("name")
        kind = entry.get("type")
        label = entry.get("server_label")
        if isinstance(label, str) and kind == "mcp":
            if isinstance(name, str):
                named = wire.McpChoice(server_label=label, name=name)
                names.add(_of_server_named(named, known, (*param, "name")))
            else:
                names |= _of_server(label, known, (*param, "server_label"))
        elif isinstance(name, str):
            names.add(_lookup(known, name, (*param, "name")))
        elif of_type := _of_type(kind, known):
            names.update(of_type)
        elif kind in known.omitted:
            continue
        else:
            raise InvalidRequest("An allowed tool is named by its type and name.", param=param)
    return names
