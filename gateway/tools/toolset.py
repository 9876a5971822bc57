"""The toolset of one request: definitions for the model, who runs each tool, and how its calls are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from gateway.constraints import Constraint, Grammar, Regex
from gateway.errors import InvalidRequest, ParamPath, PermissionDenied, Unsupported
from gateway.protocols import (
    BuiltinToolRenderer,
    ServerTool,
    SessionContext,
    ToolChoice,
    ToolDefinition,
)
from gateway.protocols.output_constraints import custom_schema
from gateway.tools.available import AvailableTools, BoundTool
from gateway.tools.builtin_labels import allows, builtin_of, check_approval
from gateway.tools.client_run import CLIENT_TOOLS, client_tool, runs_locally
from gateway.tools.fitting import fitted
from gateway.tools.requested import ListedServer, RequestTools
from gateway.tools.roles import CallRole
from gateway.tools.tool_choice import KnownTools, resolve_choice
from gateway.wire import tools as wire


class Toolset(Struct, frozen=True, kw_only=True):
    """Resolved tools of one request."""

    definitions: Sequence[ToolDefinition] = ()
    """All tools that may be offered to the model."""
    roles: Mapping[str, CallRole] = {}
    """Keyed by the name that the model sees."""
    bound_tools: Mapping[str, BoundTool] = {}
    """Tools that the gateway runs, keyed by the name that the model sees."""
    listed: Mapping[tuple[str, str], str] = {}
    """Tools of listed servers: (server label, tool name) → the name that the model sees."""
    choice: ToolChoice = "auto"
    omitted: Sequence[str] = ()
    """Tool types that the request asks the gateway to run but that are not available."""


def qualified_name(name: str, namespace: str | None) -> str:
    """The single name under which the model sees a tool in a namespace. Renderers use it for earlier calls too."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


class _Builder:
    def __init__(
        self,
        offered: AvailableTools,
        knows: Callable[[str], bool],
        context: SessionContext,
    ) -> None:
        self._offered = offered
        self._knows = knows
        self._context = context
        self.definitions: dict[str, ToolDefinition] = {}
        self.roles: dict[str, CallRole] = {}
        self.bound_tools: dict[str, BoundTool] = {}
        self.listed: dict[tuple[str, str], str] = {}
        self.omitted: dict[str, None] = {}
        """In the order of the request, without duplicates."""
        self._asked: dict[str, wire.Tool] = {}
        """The entries that select tools of the gateway, by type."""

    def add_from_item(self, tool: wire.Tool, param: ParamPath) -> None:
        """Add a tool that came with an input item. Ignored if the request already has it."""
        match tool:
            case wire.NamespaceTool():
                for inner in tool.tools:
                    if qualified_name(inner.name, tool.name) not in self.roles:
                        self.add(inner, param, tool.name)
            case wire.FunctionTool() | wire.CustomTool() if tool.name not in self.roles:
                self.add(tool, param)
            case _:
                pass

    def add(self, tool: wire.Tool, param: ParamPath, namespace: str | None = None) -> None:
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
                    (*param, "name"),
                )
            case wire.CustomTool():
                definition = ToolDefinition(
                    name=qualified_name(tool.name, namespace),
                    description=_optional(tool.description),
                    parameters=custom_schema(),
                    kind="custom",
                    grammar=_custom_grammar(tool, param),
                    namespace=namespace,
                )
                self._put(
                    definition,
                    CallRole(
                        item_type="custom_tool_call", namespace=namespace, shown_name=tool.name
                    ),
                    (*param, "name"),
                )
            case wire.NamespaceTool():
                if namespace is not None:
                    raise InvalidRequest(
                        "Namespaces cannot be nested. List the inner namespace's tools separately.",
                        param=(*param, "type"),
                    )
                for index, inner in enumerate(tool.tools):
                    self.add(inner, (*param, "tools", index), tool.name)
            case wire.McpTool() if (builtin := builtin_of(tool, self._offered.by_type)) is not None:
                self._by_label(tool, builtin, param)
            case _:
                self._hosted(tool, param)

    def _by_label(self, tool: wire.McpTool, builtin: wire.Tool, param: ParamPath) -> None:
        """Add the built-in tools that an MCP entry selects by their label."""
        check_approval(tool, param)
        context = msgspec.structs.replace(self._context, entry=builtin)
        runnable = self._offered.by_type[_request_type(builtin)]
        for entry in fitted([each for each in runnable if allows(tool, each.tool)], context, param):
            self.serve(entry)
            name = self.definition_for(entry.tool).name
            self.listed[tool.server_label, name] = name

    def _hosted(self, tool: wire.Tool, param: ParamPath) -> None:
        if isinstance(tool, wire.WebSearchTool) and tool.external_web_access is False:
            return  # Codex's default: a search without access needs no tool.
        kind = wire.type_of(tool)
        runnable = self._offered.by_type.get(_request_type(tool))
        if runnable and not _is_run_by_client(tool):
            if self._asked.setdefault(kind, tool) != tool:
                raise InvalidRequest(
                    f"Two tools of type '{kind}' have different settings. Send one tool with all settings.",
                    param=param,
                    code="duplicate_tool",
                )
            context = msgspec.structs.replace(self._context, entry=tool)
            for entry in fitted(runnable, context, param):
                self.serve(entry)
            return
        if (run_by_client := client_tool(tool)) is not None:
            definition, item_type = run_by_client
            self._put(definition, CallRole(item_type=item_type), (*param, "type"))
            return
        if isinstance(tool, wire.ToolSearchTool):
            return  # The gateway always offers all tools, so there is nothing to search for.
        if _request_type(tool) in self._offered.forbidden:
            raise PermissionDenied(
                f"This API key may not use tools of type '{kind}'. Leave it out of 'tools'.",
                param=(*param, "type"),
                code="tool_not_allowed",
            )
        if self._offered.unavailable == "omit":
            self.omitted[_request_type(tool)] = None
            return
        if isinstance(tool, wire.ShellTool):
            raise Unsupported(
                "There are no containers here to run a shell in. Run the commands yourself: send "
                '"environment": {"type": "local"}. Or have the server configured with a plugin that has containers, or to '
                'leave the tool out itself (unavailable_tools = "omit").',
                param=(*param, "environment"),
                code="unsupported_tool",
            )
        raise Unsupported(
            f"Tools of type '{kind}' are not available here. Leave it out of 'tools', or have the server configured with "
            'a plugin that runs it, or to leave it out itself (unavailable_tools = "omit"). Supported here: '
            f"{', '.join(sorted({*_ALWAYS, *self._offered.by_type, *self._offered.choices}))}.",
            param=(*param, "type"),
            code="unsupported_tool",
        )

    def serve(self, entry: BoundTool) -> None:
        """Offer a tool that the gateway runs, unless the client has a tool of that name."""
        definition = self.definition_for(entry.tool)
        name = definition.name
        if name in self.definitions:
            return
        self.definitions[name] = definition
        self.roles[name] = CallRole(
            item_type=_call_type(entry.tool.item_type), server_label=entry.server.label
        )
        self.bound_tools[name] = entry

    def definition_for(self, tool: ServerTool) -> ToolDefinition:
        """The definition of a tool for the model."""
        known = tool.builtin
        return tool.definition if known is None or not self._knows(known.name) else known

    def serve_listed(self, listed: ListedServer) -> None:
        """Offer the tools of a listed server. If a name is taken, the model sees it prefixed with the server's label."""
        label = listed.server.label
        for tool in listed.tools:
            name = tool.definition.name
            prompt_name = self._free_name(name, label)
            needs_approval = name in listed.needs_approval
            self.definitions[prompt_name] = msgspec.structs.replace(
                tool.definition, name=prompt_name
            )
            self.roles[prompt_name] = CallRole(
                item_type="mcp_approval_request" if needs_approval else _call_type(tool.item_type),
                server_label=label,
                shown_name=name,
            )
            self.bound_tools[prompt_name] = BoundTool(listed.server, tool, listed.context)
            self.listed[label, name] = prompt_name

    def _free_name(self, name: str, label: str) -> str:
        """A name that is valid in prompts and unique in this request."""
        for candidate in (name, f"{label}__{name}"):
            prompt_name = _NOT_IN_NAMES.sub("_", candidate)[:128]
            if prompt_name not in self.definitions:
                return prompt_name
        number = 2
        while f"{prompt_name[:120]}_{number}" in self.definitions:
            number += 1
        return f"{prompt_name[:120]}_{number}"

    def _put(self, definition: ToolDefinition, role: CallRole, param: ParamPath) -> None:
        if definition.name in self.roles:
            raise InvalidRequest(
                f"Two tools are named '{definition.name}'. Give each its own name.",
                param=param,
                code="duplicate_tool_name",
            )
        self.definitions[definition.name] = definition
        self.roles[definition.name] = role


_WEB_SEARCH = wire.type_of(wire.WebSearchTool)
_VARIANTS = {_WEB_SEARCH: [wire.type_of(each) for each in wire.WebSearchTool.__subclasses__()]}
_ALWAYS = ("function", "custom", "namespace", *CLIENT_TOOLS)
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")

NO_REQUEST_TOOLS = RequestTools()
_NO_TOOLS = Toolset()


def build_toolset(
    tools: Sequence[wire.Tool],
    choice: wire.ToolChoice | None,
    offered: AvailableTools,
    requested: RequestTools = NO_REQUEST_TOOLS,
    item_tools: Sequence[tuple[ParamPath, wire.Tool]] = (),
    *,
    renderer: object = None,
    context: SessionContext = SessionContext(),  # noqa: B008 (it is immutable)
) -> Toolset:
    """Resolve a request's tools. Raises `InvalidRequest` or `Unsupported` with the precise parameter.

    `requested` has the servers that entries of `tools` select. Their tools are added last, so they are renamed if names
    clash. `item_tools` are tools from input items, each with its parameter path. `renderer` may be a
    `BuiltinToolRenderer`. `context` is what tool servers are told of the request, without an entry.
    """
    nothing_given = not (tools or item_tools or requested.named or requested.offered)
    if nothing_given and not offered.always and choice is None:
        return _NO_TOOLS  # the common case: skip the rest
    knows = renderer.knows_tool if isinstance(renderer, BuiltinToolRenderer) else _no_builtin_tools
    builder = _Builder(offered, knows, context)
    searched = any(isinstance(t, wire.ToolSearchTool) and t.execution == "client" for t in tools)
    for index, tool in enumerate(tools):
        if index not in requested.named and not (searched and _deferred(tool)):
            builder.add(tool, ("tools", index))
    for param, tool in item_tools:
        builder.add_from_item(tool, param)
    for entry in fitted(offered.always, context):
        builder.serve(entry)
    for listed in (*requested.named.values(), *requested.offered):
        builder.serve_listed(listed)
    known = KnownTools(
        roles=builder.roles,
        listed=builder.listed,
        by_type={
            kind: [builder.definition_for(entry.tool).name for entry in entries]
            for shared, entries in offered.by_type.items()
            for kind in (shared, *_VARIANTS.get(shared, ()))
        },
        omitted={
            kind for shared in builder.omitted for kind in (shared, *_VARIANTS.get(shared, ()))
        },
    )
    definitions, resolved = resolve_choice(choice, list(builder.definitions.values()), known)
    return Toolset(
        definitions=definitions,
        roles=builder.roles,
        bound_tools=builder.bound_tools,
        listed=builder.listed,
        choice=resolved,
        omitted=tuple(builder.omitted),
    )


def _no_builtin_tools(name: str) -> bool:
    return False


def _request_type(tool: wire.Tool) -> str:
    """The type by which tools are selected. Dated and preview variants of web search are the same type."""
    return _WEB_SEARCH if isinstance(tool, wire.WebSearchTool) else wire.type_of(tool)


def _is_run_by_client(tool: wire.Tool) -> bool:
    """Whether the request says that the client runs the tool, even if the gateway could."""
    return isinstance(tool, wire.ShellTool) and runs_locally(tool)


def _deferred(tool: wire.Tool) -> bool:
    """Whether the model sees the tool only after the client's search has found it."""
    return isinstance(tool, wire.FunctionTool | wire.CustomTool) and tool.defer_loading is True


def _optional(value: Any) -> Any:
    return None if value is UNSET else value


def _call_type(
    item_type: str,
) -> Literal[
    "mcp_call", "code_interpreter_call", "web_search_call", "file_search_call", "shell_call"
]:
    match item_type:
        case "code_interpreter_call" | "web_search_call" | "file_search_call" | "shell_call":
            return item_type
        case _:
            return "mcp_call"


def _custom_grammar(tool: wire.CustomTool, param: ParamPath) -> Constraint | None:
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
                param=(*param, "format", "syntax"),
            )
