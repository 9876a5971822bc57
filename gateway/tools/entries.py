"""Finding the tools that the entries of a request's `tools` select: tools of the client, or tools that the gateway
runs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import SessionContext
from gateway.tools.available import AvailableTools, BoundTool, request_type
from gateway.tools.builtin_labels import builtin_of, labelled
from gateway.tools.client_functions import ClientFunction, client_functions
from gateway.tools.client_run import client_tool, runs_locally
from gateway.tools.omitted import omitted_type
from gateway.tools.roles import ClientTool
from gateway.wire import tools as wire


class Selection(Struct, frozen=True):
    """Tools that the gateway runs, and that their servers have not accepted for the request yet."""

    tools: Sequence[BoundTool]
    context: SessionContext
    """The request, as their servers see it."""
    param: ParamPath = ()
    """The position of the entry in the request."""
    label: str | None = None
    """The `server_label` that selected them."""


class Omitted(Struct, frozen=True):
    """A tool type that is not available, and that the configuration leaves out."""

    type: str


Entry: TypeAlias = ClientTool | Selection | Omitted


def tool_entries(
    tools: Sequence[wire.Tool],
    item_tools: Sequence[tuple[ParamPath, ClientFunction]],
    offered: AvailableTools,
    context: SessionContext,
    *,
    listed: Container[int],
    taken: Container[str],
) -> Iterator[Entry]:
    """Yield all tools of a request except those of listed servers, in the order in which they are added to its toolset.

    Entries of `tools` at the indices `listed` are skipped. `item_tools` are tools from input items; tools whose names
    are in `taken` are left out. An error is raised when its entry is reached, after the earlier tools have been
    yielded.
    """
    searched = any(isinstance(t, wire.ToolSearchTool) and t.execution == "client" for t in tools)
    asked: dict[str, wire.Tool] = {}
    for index, tool in enumerate(tools):
        param = ("tools", index)
        if index in listed or (searched and _deferred(tool)):
            continue
        if isinstance(tool, wire.FunctionTool | wire.CustomTool | wire.NamespaceTool):
            yield from client_functions(tool, param)
        elif isinstance(tool, wire.WebSearchTool) and tool.external_web_access is False:
            pass  # Codex's default: a search without access needs no tool.
        elif (selected := _selected(tool, offered, context, param)) is not None:
            if selected.label is None and asked.setdefault(wire.type_of(tool), tool) != tool:
                raise InvalidRequest(
                    f"Two tools of type '{wire.type_of(tool)}' have different settings. Send one tool with all settings.",
                    param=param,
                    code="duplicate_tool",
                )
            yield selected
        elif (run_by_client := client_tool(tool, param)) is not None:
            yield run_by_client
        elif not isinstance(tool, wire.ToolSearchTool):
            # The gateway always offers all tools, so there is nothing to search for.
            yield Omitted(omitted_type(tool, offered, param))
    for place, brought in item_tools:
        yield from client_functions(brought, place, without=taken)
    yield Selection(offered.always, context)


def _selected(
    tool: wire.Tool, offered: AvailableTools, context: SessionContext, param: ParamPath
) -> Selection | None:
    """The tools run by the gateway that an entry selects; None if it selects no such tool."""
    if (
        isinstance(tool, wire.McpTool)
        and (builtin := builtin_of(tool, offered.by_type)) is not None
    ):
        allowed = labelled(offered.by_type[request_type(builtin)], tool, param)
        context = msgspec.structs.replace(context, entry=builtin)
        return Selection(allowed, context, param, tool.server_label)
    tools = offered.by_type.get(request_type(tool), ())
    if not tools or (isinstance(tool, wire.ShellTool) and runs_locally(tool)):
        return None
    return Selection(tools, msgspec.structs.replace(context, entry=tool), param)


def _deferred(tool: wire.Tool) -> bool:
    """Whether the model sees the tool only after the client's search has found it."""
    return isinstance(tool, wire.FunctionTool | wire.CustomTool) and tool.defer_loading is True
