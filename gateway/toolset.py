"""The tools of one request: what the model is told, who runs each, and how its calls are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from gateway.assembler import CallRole
from gateway.constraints import Constraint, Grammar, Regex
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import (
    NamedTool,
    ServedTool,
    ToolChoice,
    ToolDefinition,
    ToolServer,
    ToolServers,
)
from gateway.request_tools import ListedServer, RequestTools
from gateway.wire import tools as wire


class RunnableTool(Struct, frozen=True):
    """A tool that the gateway runs, with the server that runs it."""

    server: ToolServer
    tool: ServedTool


class Toolset(Struct, frozen=True, kw_only=True):
    """What a request's `tools` and `tool_choice` come to."""

    definitions: Sequence[ToolDefinition] = ()
    """All tools that the model may be told of."""
    roles: Mapping[str, CallRole] = {}
    """By the name that the model is told."""
    served: Mapping[str, RunnableTool] = {}
    """By the name that the model is told."""
    listed: Mapping[tuple[str, str], str] = {}
    """The name that the model is told, by server label and name, of the tools of listed servers."""
    choice: ToolChoice = "auto"


class OfferedTools(Struct, frozen=True):
    """The tools that the configuration lets requests use: by the type that a request names them with."""

    by_type: Mapping[str, Sequence[RunnableTool]] = {}
    always: Sequence[RunnableTool] = ()
    """Offered to the model whether a request asks or not."""
    choices: Mapping[str, ToolServers] = {}
    """Servers that requests choose from, by the type of the entries that name them."""
    chat: Sequence[RunnableTool] = ()
    """Offered to the model in Chat Completions, which cannot ask for them."""


def qualified_name(name: str, namespace: str | None) -> str:
    """The one name under which a model is told of a tool in a namespace; renderers use it for earlier calls too."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


class _Builder:
    def __init__(self, offered: OfferedTools) -> None:
        self._offered = offered
        self.definitions: dict[str, ToolDefinition] = {}
        self.roles: dict[str, CallRole] = {}
        self.served: dict[str, RunnableTool] = {}
        self.listed: dict[tuple[str, str], str] = {}

    def add(self, tool: wire.Tool, param: str, namespace: str | None = None) -> None:
        match tool:
            case wire.FunctionTool():
                definition = ToolDefinition(
                    name=qualified_name(tool.name, namespace),
                    description=_optional(tool.description),
                    parameters=_optional(tool.parameters),
                    strict=bool(_optional(tool.strict)),
                    namespace=namespace,
                )
                self._put(
                    definition,
                    CallRole(item_type="function_call", namespace=namespace, shown_name=tool.name),
                    f"{param}.name",
                )
            case wire.CustomTool():
                definition = ToolDefinition(
                    name=qualified_name(tool.name, namespace),
                    description=_optional(tool.description),
                    parameters=_CUSTOM_PARAMETERS,
                    kind="custom",
                    grammar=_custom_grammar(tool, param),
                    namespace=namespace,
                )
                self._put(
                    definition,
                    CallRole(
                        item_type="custom_tool_call", namespace=namespace, shown_name=tool.name
                    ),
                    f"{param}.name",
                )
            case wire.NamespaceTool():
                if namespace is not None:
                    raise InvalidRequest(
                        "A namespace cannot hold a namespace. List its tools beside it.",
                        param=f"{param}.type",
                    )
                for index, inner in enumerate(tool.tools):
                    self.add(inner, f"{param}.tools[{index}]", tool.name)
            case _:
                self._hosted(tool, param)

    def _hosted(self, tool: wire.Tool, param: str) -> None:
        kind = wire.type_of(tool)
        runnable = self._offered.by_type.get(kind)
        if runnable:
            for entry in runnable:
                self.serve(entry)
            return
        if isinstance(tool, wire.WebSearchTool) and tool.external_web_access is False:
            return  # Codex's default: a search that may not search asks for nothing.
        raise Unsupported(
            f"Tools of type '{kind}' are not available on this server. Supported here: "
            f"{', '.join(sorted({'function', 'custom', 'namespace', *self._offered.by_type, *self._offered.choices}))}.",
            param=f"{param}.type",
            code="unsupported_tool",
        )

    def serve(self, entry: RunnableTool) -> None:
        """Offer a tool that the gateway runs; a client's tool of the same name goes before it."""
        name = entry.tool.definition.name
        if name in self.definitions:
            return
        self.definitions[name] = entry.tool.definition
        self.roles[name] = CallRole(
            item_type=_call_type(entry.tool.item_type), server_label=entry.server.label
        )
        self.served[name] = entry

    def serve_listed(self, listed: ListedServer) -> None:
        """Offer the tools of a server of its own; where a name is taken, the model is told it with the server's label."""
        label = listed.server.label
        for tool in listed.tools:
            name = tool.definition.name
            told = self._free_name(name, label)
            needs_approval = name in listed.needs_approval
            self.definitions[told] = msgspec.structs.replace(tool.definition, name=told)
            self.roles[told] = CallRole(
                item_type="mcp_approval_request" if needs_approval else _call_type(tool.item_type),
                server_label=label,
                shown_name=name,
            )
            self.served[told] = RunnableTool(listed.server, tool)
            self.listed[label, name] = told

    def _free_name(self, name: str, label: str) -> str:
        """A name of the characters that may stand in a prompt, and that no other tool of this request has."""
        for candidate in (name, f"{label}__{name}"):
            told = _NOT_IN_NAMES.sub("_", candidate)[:128]
            if told not in self.definitions:
                return told
        number = 2
        while f"{told[:120]}_{number}" in self.definitions:
            number += 1
        return f"{told[:120]}_{number}"

    def _put(self, definition: ToolDefinition, role: CallRole, param: str) -> None:
        if definition.name in self.roles:
            raise InvalidRequest(
                f"Two tools are named '{definition.name}'. Give each its own name.",
                param=param,
                code="duplicate_tool_name",
            )
        self.definitions[definition.name] = definition
        self.roles[definition.name] = role


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")

_CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


NO_REQUEST_TOOLS = RequestTools()


def build_toolset(
    tools: Sequence[wire.Tool],
    choice: wire.ToolChoice | None,
    offered: OfferedTools,
    requested: RequestTools = NO_REQUEST_TOOLS,
) -> Toolset:
    """Resolve a request's tools; raises `InvalidRequest` or `Unsupported` with the precise parameter.

    `requested` has the servers that entries of `tools` name. Their tools come last: they give way where names clash.
    """
    builder = _Builder(offered)
    for index, tool in enumerate(tools):
        if index not in requested.named:
            builder.add(tool, f"tools[{index}]")
    for entry in offered.always:
        builder.serve(entry)
    for listed in (*requested.named.values(), *requested.offered):
        builder.serve_listed(listed)
    definitions = list(builder.definitions.values())
    resolved: ToolChoice
    match choice:
        case None:
            resolved = "auto"
        case "auto" | "none" | "required":
            resolved = choice
        case wire.AllowedToolsChoice():
            names = _allowed(choice, builder)
            definitions = [d for d in definitions if d.name in names]
            resolved = "required" if choice.mode == "required" else "auto"
        case wire.McpChoice(name=None):
            names = _of_server(choice.server_label, builder, "tool_choice.server_label")
            definitions = [d for d in definitions if d.name in names]
            resolved = "required"
        case wire.McpChoice():
            resolved = NamedTool(_of_server_named(choice, builder))
        case _:
            resolved = NamedTool(_chosen(choice, builder))
    if resolved == "required" and not definitions:
        raise InvalidRequest(
            "tool_choice is 'required', but no tools were given. Add tools, or leave tool_choice out.",
            param="tool_choice",
        )
    return Toolset(
        definitions=definitions,
        roles=builder.roles,
        served=builder.served,
        listed=builder.listed,
        choice=resolved,
    )


def _optional(value: Any) -> Any:
    return None if value is UNSET else value


def _call_type(
    item_type: str,
) -> Literal["mcp_call", "code_interpreter_call", "web_search_call"]:
    match item_type:
        case "code_interpreter_call" | "web_search_call":
            return item_type
        case _:
            return "mcp_call"


def _custom_grammar(tool: wire.CustomTool, param: str) -> Constraint | None:
    grammar = wire.custom_grammar(tool)
    if grammar is None:
        return None
    syntax, definition = grammar
    match syntax:
        case "lark":
            return Grammar("lark", definition)
        case "regex":
            return Regex(definition)
        case _:
            raise InvalidRequest(
                f"'{syntax}' is not a grammar syntax. Use 'lark' or 'regex'.",
                param=f"{param}.format.syntax",
            )


def _lookup(builder: _Builder, name: str, param: str) -> str:
    if name in builder.roles:
        return name
    shown = [told for told, role in builder.roles.items() if role.shown_name == name]
    if len(shown) == 1:
        return shown[0]
    raise InvalidRequest(
        f"tool_choice names '{name}', which is not among the tools of this request.", param=param
    )


def _of_server(label: str, builder: _Builder, param: str) -> set[str]:
    """What the model is told of the tools of one server."""
    names = {told for (server, _), told in builder.listed.items() if server == label}
    if not names:
        raise InvalidRequest(
            f"The server '{label}' has no tools in this request.", param=param, code="invalid_value"
        )
    return names


def _of_server_named(choice: wire.McpChoice, builder: _Builder) -> str:
    told = builder.listed.get((choice.server_label, choice.name or ""))
    if told is None:
        raise InvalidRequest(
            f"The server '{choice.server_label}' has no tool '{choice.name}' in this request.",
            param="tool_choice.name",
        )
    return told


def _chosen(choice: Any, builder: _Builder) -> str:
    name = wire.chosen_name(choice)
    if name is not None:
        return _lookup(builder, name, "tool_choice.name")
    kind = wire.type_of(choice)
    runnable = builder._offered.by_type.get(kind) or ()
    if len(runnable) == 1:
        return runnable[0].tool.definition.name
    raise Unsupported(
        f"tool_choice of type '{kind}' cannot be honoured here: no such tool is offered.",
        param="tool_choice",
    )


def _allowed(choice: wire.AllowedToolsChoice, builder: _Builder) -> set[str]:
    names: set[str] = set()
    for index, entry in enumerate(choice.tools):
        param = f"tool_choice.tools[{index}]"
        name = entry.get("name")
        kind = entry.get("type")
        label = entry.get("server_label")
        if isinstance(label, str) and kind == "mcp":
            if isinstance(name, str):
                names.add(_of_server_named(wire.McpChoice(server_label=label, name=name), builder))
            else:
                names |= _of_server(label, builder, f"{param}.server_label")
        elif isinstance(name, str):
            names.add(_lookup(builder, name, f"{param}.name"))
        elif isinstance(kind, str) and kind in builder._offered.by_type:
            names |= {e.tool.definition.name for e in builder._offered.by_type[kind]}
        else:
            raise InvalidRequest("An allowed tool is named by its type and name.", param=param)
    return names
