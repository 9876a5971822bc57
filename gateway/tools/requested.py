"""Listing the tools of the servers that a request selects, before the model generates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from gateway.base.errors import GatewayError, InvalidRequest, ParamPath
from gateway.plugins.protocols import ServerTool, SessionContext, ToolServer
from gateway.tools.builtin_labels import builtin_of
from gateway.tools.fitting import below, checked
from gateway.wire import items
from gateway.wire import tools as wire

logger = logging.getLogger("gateway.tools")


class ListedServer(Struct, frozen=True, kw_only=True):
    """A tool server with the tools that it offers to one request."""

    server: ToolServer
    context: SessionContext = SessionContext()
    """The request, as tool sessions see it."""
    tools: Sequence[ServerTool] = ()
    needs_approval: frozenset[str] = frozenset()
    """Names of the tools whose calls require the client's approval."""
    error: str | None = None
    """Why the tools could not be listed; `tools` is then empty."""

    @property
    def named_by_address(self) -> bool:
        """Whether the server's address comes from the request. Such a server is not trusted as configured ones are."""
        entry = self.context.entry
        return isinstance(entry, wire.McpTool) and isinstance(entry.server_url, str)

    def listing(self) -> items.McpListTools:
        """The list of tools as an item of the response, without an id."""
        return items.McpListTools(
            server_label=self.server.label,
            tools=[
                items.McpListedTool(
                    name=tool.definition.name,
                    description=(
                        UNSET
                        if tool.definition.description is None
                        else tool.definition.description
                    ),
                    input_schema=tool.definition.parameters or {"type": "object"},
                    annotations=dict(tool.hints) or UNSET,
                )
                for tool in self.tools
            ],
            error=self.error or UNSET,
        )


class RequestTools(Struct, frozen=True, kw_only=True):
    """The tool servers of one request, listed."""

    named: Mapping[int, ListedServer] = {}
    """Servers selected by entries of `tools`, by the entry's index."""
    offered: Sequence[ListedServer] = ()
    """Servers whose tools every request has, except those that an entry selects."""


async def list_request_tools(
    tools: Sequence[wire.Tool],
    choices: Mapping[str, ToolServer],
    context: SessionContext,
    *,
    builtins: Collection[str] = (),
) -> RequestTools:
    """List the tools of all servers that `tools` selects, concurrently.

    `choices` maps entry types to the servers that they select. `context` has no entry. `builtins` are types of tools
    that are not in `choices`, which an MCP entry may also select by their label. Raises `GatewayError` with the
    parameter for an address that must not be reached. A server that cannot be reached has an `error` and no tools.
    """
    if not choices:
        return RequestTools()
    named: dict[int, tuple[SessionContext, ToolServer]] = {}
    labels: set[str] = set()
    for index, tool in enumerate(tools):
        servers = choices.get(wire.type_of(tool))
        if servers is None or builtin_of(tool, builtins) is not None:
            continue
        own = msgspec.structs.replace(context, entry=tool)
        server = checked(servers, own, ("tools", index))
        if server.label in labels:
            raise InvalidRequest(
                f"Two entries of tools have the server_label '{server.label}'. Give each its own.",
                param=("tools", index, "server_label"),
                code="duplicate_server_label",
            )
        labels.add(server.label)
        named[index] = own, server
    offered = [
        server
        for servers in choices.values()
        for server in servers.offered()
        if server.label not in labels
    ]
    outcomes = await asyncio.gather(
        *(_list(server, own, ("tools", index)) for index, (own, server) in named.items()),
        *(_list(checked(server, context), context) for server in offered),
        return_exceptions=True,  # wait for all of them
    )
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
    listed = [each for each in outcomes if isinstance(each, ListedServer)]
    return RequestTools(
        named=dict(zip(named, listed[: len(named)], strict=True)),
        offered=[each for each in listed[len(named) :] if each.error is None],
    )


async def list_without_approval(
    servers: Sequence[ToolServer], context: SessionContext
) -> RequestTools:
    """List the tools of `servers` that need no approval, concurrently. For APIs in which calls cannot be approved.

    Servers that cannot list their tools now are left out.
    """
    distinct = list({id(server): server for server in servers}.values())
    found = await asyncio.gather(*(_list(checked(server, context), context) for server in distinct))
    return RequestTools(
        offered=[
            msgspec.structs.replace(
                each,
                tools=[t for t in each.tools if t.definition.name not in each.needs_approval],
            )
            for each in found
            if each.error is None
        ]
    )


async def _list(server: ToolServer, context: SessionContext, param: ParamPath = ()) -> ListedServer:
    entry = context.entry
    try:
        with below(param):
            tools = await server.tools()
    except GatewayError:
        raise
    except Exception as failure:
        # Tool servers are third-party code: a failure to list tools is shown and does not end the
        # response.
        logger.warning("tool server %s could not list its tools: %s", server.label, failure)
        return ListedServer(
            server=server,
            context=context,
            error=f"The tools could not be listed: {str(failure) or type(failure).__name__}",
        )
    if isinstance(entry, wire.McpTool):
        tools = [tool for tool in tools if _allowed(entry, tool)]
    return ListedServer(
        server=server,
        context=context,
        tools=tools,
        needs_approval=frozenset(
            tool.definition.name for tool in tools if _needs_approval(entry, tool)
        ),
    )


def _allowed(entry: wire.McpTool, tool: ServerTool) -> bool:
    match entry.allowed_tools:
        case wire.McpToolFilter() as wanted:
            return _fits(wanted, tool)
        case list() as names:
            return tool.definition.name in names
        case _:
            return True


def _needs_approval(entry: wire.Tool | None, tool: ServerTool) -> bool:
    """Whether calls of a tool need approval. The request decides; if it does not set this, the server does. A tool that
    the request's filter excludes needs approval."""
    wish = entry.require_approval if isinstance(entry, wire.McpTool) else UNSET
    match wish:
        case wire.McpApprovalFilter():
            if isinstance(wish.always, wire.McpToolFilter) and _fits(wish.always, tool):
                return True
            return not (isinstance(wish.never, wire.McpToolFilter) and _fits(wish.never, tool))
        case "always":
            return True
        case "never":
            return False
        case _:
            return tool.needs_approval


def _fits(wanted: wire.McpToolFilter, tool: ServerTool) -> bool:
    if wanted.tool_names is not UNSET and tool.definition.name not in wanted.tool_names:
        return False
    return wanted.read_only is UNSET or bool(tool.hints.get("readOnlyHint")) == wanted.read_only


def new_listings(
    requested: RequestTools, context: Sequence[items.Item]
) -> list[items.McpListTools]:
    """The tool lists to show in the response: of the servers whose lists are not in the conversation yet."""
    if not requested.named:
        return []
    shown = {
        item.server_label
        for item in context
        if isinstance(item, items.McpListTools) and not item.error
    }
    return [
        listed.listing() for listed in requested.named.values() if listed.server.label not in shown
    ]
