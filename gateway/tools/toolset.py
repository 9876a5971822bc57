"""The tools of one request: what the model is told, who runs each, and how its calls are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from gateway.constraints import Constraint, Grammar, Regex
from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.tool_choice import KnownTools, resolve_choice
from gateway.protocols import (
    KnowingRenderer,
    ServedTool,
    ToolChoice,
    ToolDefinition,
)
from gateway.responses.roles import CallRole
from gateway.tools.client_run import CLIENT_TOOLS, client_tool, runs_locally
from gateway.tools.fitting import fitted, owned
from gateway.tools.offered import OfferedTools, RunnableTool
from gateway.tools.requested import ListedServer, RequestTools
from gateway.wire import tools as wire
from gateway.wire.items import Item


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
    omitted: Sequence[str] = ()
    """The types of the tools that the request asks the gateway to run, and that the model is not told of."""


def qualified_name(name: str, namespace: str | None) -> str:
    """The one name under which a model is told of a tool in a namespace; renderers use it for earlier calls too."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


class _Builder:
    def __init__(
        self,
        offered: OfferedTools,
        knows: Callable[[str], bool],
        owner: str | None,
        items: Sequence[Item],
    ) -> None:
        self._offered = offered
        self._knows = knows
        self._owner = owner
        self._items = items
        self.definitions: dict[str, ToolDefinition] = {}
        self.roles: dict[str, CallRole] = {}
        self.served: dict[str, RunnableTool] = {}
        self.listed: dict[tuple[str, str], str] = {}
        self.omitted: dict[str, None] = {}
        """In the order of the request, each once."""
        self._asked: dict[str, wire.Tool] = {}
        """The entries that ask for tools of the gateway's, by their types."""

    def bring(self, tool: wire.Tool, param: str) -> None:
        """Add a tool that came with an item; one that the request has already stays as it is."""
        match tool:
            case wire.NamespaceTool():
                for inner in tool.tools:
                    if qualified_name(inner.name, tool.name) not in self.roles:
                        self.add(inner, param, tool.name)
            case wire.FunctionTool() | wire.CustomTool() if tool.name not in self.roles:
                self.add(tool, param)
            case _:
                pass

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
        if isinstance(tool, wire.WebSearchTool) and tool.external_web_access is False:
            return  # Codex's default: a search that may not search asks for nothing.
        kind = wire.type_of(tool)
        runnable = self._offered.by_type.get(_request_type(tool))
        if runnable and not _names_client(tool):
            if self._asked.setdefault(kind, tool) != tool:
                raise InvalidRequest(
                    f"Two tools of type '{kind}' ask for different things. Send one that asks for all.",
                    param=param,
                    code="duplicate_tool",
                )
            for entry in fitted(runnable, tool, param, owner=self._owner, items=self._items):
                self.serve(entry)
            return
        if (run_by_client := client_tool(tool)) is not None:
            definition, item_type = run_by_client
            self._put(definition, CallRole(item_type=item_type), f"{param}.type")
            return
        if isinstance(tool, wire.ToolSearchTool):
            return  # The gateway hides no tools: all that could be searched for are told at once.
        if self._offered.unavailable == "omit":
            self.omitted[_request_type(tool)] = None
            return
        if isinstance(tool, wire.ShellTool):
            raise Unsupported(
                "There are no containers here to run a shell in. Run the commands yourself: send "
                '"environment": {"type": "local"}. Or have the server configured with a plugin that has containers, or to '
                'leave the tool out itself (unavailable_tools = "omit").',
                param=f"{param}.environment",
                code="unsupported_tool",
            )
        raise Unsupported(
            f"Tools of type '{kind}' are not available here. Leave it out of 'tools', or have the server configured with "
            'a plugin that runs it, or to leave it out itself (unavailable_tools = "omit"). Supported here: '
            f"{', '.join(sorted({*_ALWAYS, *self._offered.by_type, *self._offered.choices}))}.",
            param=f"{param}.type",
            code="unsupported_tool",
        )

    def serve(self, entry: RunnableTool) -> None:
        """Offer a tool that the gateway runs; a client's tool of the same name goes before it."""
        definition = self.told(entry.tool)
        name = definition.name
        if name in self.definitions:
            return
        self.definitions[name] = definition
        self.roles[name] = CallRole(
            item_type=_call_type(entry.tool.item_type), server_label=entry.server.label
        )
        self.served[name] = entry

    def told(self, tool: ServedTool) -> ToolDefinition:
        """What the model is told of a tool."""
        known = tool.builtin
        return tool.definition if known is None or not self._knows(known.name) else known

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


_WEB_SEARCH = wire.type_of(wire.WebSearchTool)
_VARIANTS = {_WEB_SEARCH: [wire.type_of(each) for each in wire.WebSearchTool.__subclasses__()]}
_ALWAYS = ("function", "custom", "namespace", *CLIENT_TOOLS)
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")

_CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


NO_REQUEST_TOOLS = RequestTools()
_NO_TOOLS = Toolset()


def build_toolset(
    tools: Sequence[wire.Tool],
    choice: wire.ToolChoice | None,
    offered: OfferedTools,
    requested: RequestTools = NO_REQUEST_TOOLS,
    brought: Sequence[tuple[str, wire.Tool]] = (),
    *,
    renderer: object = None,
    owner: str | None = None,
    items: Sequence[Item] = (),
) -> Toolset:
    """Resolve a request's tools; raises `InvalidRequest` or `Unsupported` with the precise parameter.

    `requested` has the servers that entries of `tools` name. Their tools come last: they give way where names clash.
    `brought` are tools that came with items, each with the parameter that it is in. `renderer` may be a `KnowingRenderer`.
    `items` are the conversation's.
    """
    nothing_given = not (tools or brought or requested.named or requested.offered)
    if nothing_given and not offered.always and choice is None:
        return _NO_TOOLS  # as in most requests, which need none of what follows
    knows = renderer.knows_tool if isinstance(renderer, KnowingRenderer) else _knows_none
    builder = _Builder(offered, knows, owner, items)
    searched = any(isinstance(t, wire.ToolSearchTool) and t.execution == "client" for t in tools)
    for index, tool in enumerate(tools):
        if index not in requested.named and not (searched and _deferred(tool)):
            builder.add(tool, f"tools[{index}]")
    for param, tool in brought:
        builder.bring(tool, param)
    for entry in owned(offered.always, owner):
        builder.serve(entry)
    for listed in (*requested.named.values(), *requested.offered):
        builder.serve_listed(listed)
    known = KnownTools(
        roles=builder.roles,
        listed=builder.listed,
        by_type={
            kind: [builder.told(entry.tool).name for entry in entries]
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
        served=builder.served,
        listed=builder.listed,
        choice=resolved,
        omitted=tuple(builder.omitted),
    )


def _knows_none(name: str) -> bool:
    return False


def _request_type(tool: wire.Tool) -> str:
    """The type by which tools are offered: the dated and preview variants of web search are one."""
    return _WEB_SEARCH if isinstance(tool, wire.WebSearchTool) else wire.type_of(tool)


def _names_client(tool: wire.Tool) -> bool:
    """Whether a request says that the client runs the tool, also where the gateway could."""
    return isinstance(tool, wire.ShellTool) and runs_locally(tool)


def _deferred(tool: wire.Tool) -> bool:
    """Whether the model is told of a tool only once the client's search has found it."""
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
