"""The tools of one request: what the model is told, who runs each, and how its calls are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from gateway.assembler import CallRole
from gateway.constraints import Constraint, Grammar, Regex
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import NamedTool, ServedTool, ToolChoice, ToolDefinition, ToolServer
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
    choice: ToolChoice = "auto"


class OfferedTools(Struct, frozen=True):
    """The tools that the configuration lets requests use: by the type that a request names them with."""

    by_type: Mapping[str, Sequence[RunnableTool]] = {}
    always: Sequence[RunnableTool] = ()
    """Offered to the model whether a request asks or not."""


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
            f"{', '.join(sorted({'function', 'custom', 'namespace', *self._offered.by_type}))}.",
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

    def _put(self, definition: ToolDefinition, role: CallRole, param: str) -> None:
        if definition.name in self.roles:
            raise InvalidRequest(
                f"Two tools are named '{definition.name}'. Give each its own name.",
                param=param,
                code="duplicate_tool_name",
            )
        self.definitions[definition.name] = definition
        self.roles[definition.name] = role


_CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def build_toolset(
    tools: Sequence[wire.Tool], choice: wire.ToolChoice | None, offered: OfferedTools
) -> Toolset:
    """Resolve a request's tools; raises `InvalidRequest` or `Unsupported` with the precise parameter."""
    builder = _Builder(offered)
    for index, tool in enumerate(tools):
        builder.add(tool, f"tools[{index}]")
    for entry in offered.always:
        builder.serve(entry)
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
        case _:
            resolved = NamedTool(_chosen(choice, builder))
    if resolved == "required" and not definitions:
        raise InvalidRequest(
            "tool_choice is 'required', but no tools were given. Add tools, or leave tool_choice out.",
            param="tool_choice",
        )
    return Toolset(
        definitions=definitions, roles=builder.roles, served=builder.served, choice=resolved
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
        if isinstance(name, str):
            names.add(_lookup(builder, name, f"{param}.name"))
        elif isinstance(kind, str) and kind in builder._offered.by_type:
            names |= {e.tool.definition.name for e in builder._offered.by_type[kind]}
        else:
            raise InvalidRequest("An allowed tool is named by its type and name.", param=param)
    return names
