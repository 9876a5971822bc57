"""The toolset of one request: the definitions for the model, who runs each tool, and how calls are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import (
    BuiltinToolRenderer,
    ServerTool,
    SessionContext,
    ToolChoice,
    ToolDefinition,
)
from gateway.tools.available import AvailableTools, BoundTool, with_variants
from gateway.tools.client_functions import ClientFunction
from gateway.tools.entries import Omitted, Selection, tool_entries
from gateway.tools.fitting import fitted
from gateway.tools.listed_names import ListedNames
from gateway.tools.requested import ListedServer, RequestTools
from gateway.tools.roles import CallRole, ClientTool
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
    """Requested tool types that the gateway would have to run and that are not available."""


class _Builder:
    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self.definitions: dict[str, ToolDefinition] = {}
        self.roles: dict[str, CallRole] = {}
        self.bound_tools: dict[str, BoundTool] = {}
        self.listed: dict[tuple[str, str], str] = {}

    def definition_for(self, tool: ServerTool) -> ToolDefinition:
        """The definition of a tool for the model."""
        known = tool.builtin
        return tool.definition if known is None or not self._knows(known.name) else known

    def add(self, tool: ClientTool) -> None:
        """Add a tool that the client runs. Raises `InvalidRequest` if its name is taken."""
        definition = tool.definition
        if definition.name in self.roles:
            raise InvalidRequest(
                f"Two tools are named '{definition.name}'. Give each its own name.",
                param=tool.param,
                code="duplicate_tool_name",
            )
        self.definitions[definition.name] = definition
        self.roles[definition.name] = tool.role

    def serve(self, bound: BoundTool, label: str | None) -> None:
        """Offer a tool that the gateway runs. Does nothing if the client has a tool of that name. `label` is the
        `server_label` that selected the tool, if any."""
        definition = self.definition_for(bound.tool)
        name = definition.name
        if name not in self.definitions:
            self.definitions[name] = definition
            self.roles[name] = CallRole(
                item_type=_call_type(bound.tool.item_type), server_label=bound.server.label
            )
            self.bound_tools[name] = bound
        if label is not None:
            self.listed[label, name] = name

    def serve_listed(self, listed: ListedServer, names: ListedNames) -> None:
        """Offer the tools of a listed server. The name that the model sees begins with the server's label if the tool's
        own name is taken, or if the server's address comes from the request."""
        label = listed.server.label
        for tool in listed.tools:
            name = tool.definition.name
            prompt_name = names.free(label, name, self.roles, trusted=not listed.named_by_address)
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

    def accept_bare_names(self, listed: ListedServer) -> None:
        """Also accept calls of a server's tools by their names without the label, although the model does not see these
        names. Used for requests without other tools."""
        for tool in listed.tools:
            name = tool.definition.name
            prompt_name = self.listed[listed.server.label, name]
            if name not in self.roles:
                self.roles[name] = self.roles[prompt_name]
                self.bound_tools[name] = self.bound_tools[prompt_name]


NO_REQUEST_TOOLS = RequestTools()
_NO_TOOLS = Toolset()


def build_toolset(
    tools: Sequence[wire.Tool],
    choice: wire.ToolChoice | None,
    offered: AvailableTools,
    requested: RequestTools = NO_REQUEST_TOOLS,
    item_tools: Sequence[tuple[ParamPath, ClientFunction]] = (),
    *,
    renderer: object = None,
    context: SessionContext = SessionContext(),  # noqa: B008 (it is immutable)
) -> Toolset:
    """Resolve a request's tools. Raises `InvalidRequest` or `Unsupported` with the precise parameter.

    `requested` contains the servers that entries of `tools` select. Their tools are added last, so that they are
    renamed if names clash; the tools of servers whose addresses come from the request are added after all others.
    `item_tools` are tools from input items, each with its parameter path. `renderer` may be a `BuiltinToolRenderer`.
    `context` describes the request to tool servers, without an entry.
    """
    nothing_given = not (tools or item_tools or requested.named or requested.offered)
    if nothing_given and not offered.always and choice is None:
        return _NO_TOOLS  # the common case: skip the rest
    knows = renderer.knows_tool if isinstance(renderer, BuiltinToolRenderer) else _no_builtin_tools
    builder = _Builder(knows)
    omitted: dict[str, None] = {}  # in the order of the request, without duplicates
    entries = tool_entries(
        tools, item_tools, offered, context, listed=requested.named, taken=builder.roles
    )
    for entry in entries:
        match entry:
            case ClientTool():
                builder.add(entry)
            case Selection():
                for bound in fitted(entry.tools, entry.context, entry.param):
                    builder.serve(bound, entry.label)
            case Omitted():
                omitted[entry.type] = None
    servers = sorted(
        (*requested.named.values(), *requested.offered), key=lambda each: each.named_by_address
    )
    only = servers[0] if len(servers) == 1 and not builder.roles else None
    names = ListedNames([each.server.label for each in servers])
    for listed in servers:
        builder.serve_listed(listed, names)
    known = KnownTools(
        roles=builder.roles,
        listed=builder.listed,
        by_type={
            kind: [builder.definition_for(each.tool).name for each in bound_tools]
            for type_, bound_tools in offered.by_type.items()
            for kind in with_variants(type_)
        },
        omitted={kind for type_ in omitted for kind in with_variants(type_)},
    )
    definitions, resolved = resolve_choice(choice, list(builder.definitions.values()), known)
    if only is not None:
        builder.accept_bare_names(only)
    return Toolset(
        definitions=definitions,
        roles=builder.roles,
        bound_tools=builder.bound_tools,
        listed=builder.listed,
        choice=resolved,
        omitted=tuple(omitted),
    )


def _no_builtin_tools(name: str) -> bool:
    return False


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
