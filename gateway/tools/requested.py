"""The tools of servers that a request names or every request has, listed before the model is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols import ServedTool, ToolServer, ToolServers
from gateway.wire import items
from gateway.wire import tools as wire

logger = logging.getLogger("gateway.tools")


class ListedServer(Struct, frozen=True, kw_only=True):
    """A tool server, and what it offers to one request."""

    server: ToolServer
    tools: Sequence[ServedTool] = ()
    needs_approval: frozenset[str] = frozenset()
    """The names of those tools whose calls the client approves first."""
    error: str | None = None
    """Why the tools could not be listed; then there are none."""

    def listing(self) -> items.McpListTools:
        """The same as an item of the response, yet without an id."""
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
    """What the entries of a request's `tools` that name servers come to."""

    named: Mapping[int, ListedServer] = {}
    """By the index of the entry."""
    offered: Sequence[ListedServer] = ()
    """Servers whose tools every request has, so far as no entry names them."""


async def list_request_tools(
    tools: Sequence[wire.Tool], choices: Mapping[str, ToolServers], *, owner: str | None
) -> RequestTools:
    """List the tools of all servers that `tools` names, at once.

    `choices` has the servers to choose from, by the type of the entries. Raises `GatewayError`, with the parameter that is
    at fault, for what may not be reached; a server that cannot be reached has an `error` in place of tools.
    """
    if not choices:
        return RequestTools()
    named: dict[int, tuple[wire.Tool, ToolServer]] = {}
    labels: set[str] = set()
    for index, tool in enumerate(tools):
        servers = choices.get(wire.type_of(tool))
        if servers is None:
            continue
        try:
            server = servers.for_request(tool, owner=owner)
        except GatewayError as error:
            raise _at(index, error) from None
        if server.label in labels:
            raise InvalidRequest(
                f"Two entries of tools have the server_label '{server.label}'. Give each its own.",
                param=f"tools[{index}].server_label",
                code="duplicate_server_label",
            )
        labels.add(server.label)
        named[index] = tool, server
    offered = [
        server
        for servers in choices.values()
        for server in servers.offered()
        if server.label not in labels
    ]
    outcomes = await asyncio.gather(
        *(_list(server, tool, index) for index, (tool, server) in named.items()),
        *(_list(server, None, None) for server in offered),
        return_exceptions=True,  # all are waited for: none is left behind
    )
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
    listed = [each for each in outcomes if isinstance(each, ListedServer)]
    return RequestTools(
        named=dict(zip(named, listed[: len(named)], strict=True)),
        offered=[each for each in listed[len(named) :] if each.error is None],
    )


async def list_without_approval(servers: Sequence[ToolServer]) -> RequestTools:
    """The tools of `servers`, listed at once, for APIs in which nobody can approve a call: those that need no approval.

    Servers that cannot list their tools now are left out.
    """
    distinct = list({id(server): server for server in servers}.values())
    found = await asyncio.gather(*(_list(server, None, None) for server in distinct))
    return RequestTools(
        offered=[
            ListedServer(
                server=each.server,
                tools=[t for t in each.tools if t.definition.name not in each.needs_approval],
            )
            for each in found
            if each.error is None
        ]
    )


async def _list(server: ToolServer, entry: wire.Tool | None, index: int | None) -> ListedServer:
    try:
        tools = await server.tools()
    except GatewayError as error:
        if index is None:
            raise
        raise _at(index, error) from None
    except Exception as failure:
        # A tool server is somebody's code: that it cannot list its tools is shown, and ends nothing.
        logger.warning("tool server %s could not list its tools: %s", server.label, failure)
        return ListedServer(
            server=server,
            error=f"The tools could not be listed: {str(failure) or type(failure).__name__}",
        )
    if isinstance(entry, wire.McpTool):
        tools = [tool for tool in tools if _allowed(entry, tool)]
    return ListedServer(
        server=server,
        tools=tools,
        needs_approval=frozenset(
            tool.definition.name for tool in tools if _needs_approval(entry, tool)
        ),
    )


def _at(index: int, error: GatewayError) -> GatewayError:
    error.param = f"tools[{index}].{error.param}" if error.param else f"tools[{index}]"
    return error


def _allowed(entry: wire.McpTool, tool: ServedTool) -> bool:
    match entry.allowed_tools:
        case wire.McpToolFilter() as wanted:
            return _fits(wanted, tool)
        case list() as names:
            return tool.definition.name in names
        case _:
            return True


def _needs_approval(entry: wire.Tool | None, tool: ServedTool) -> bool:
    """As the request says; where it is silent, as the server does. A tool that a filter leaves out is approved first."""
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


def _fits(wanted: wire.McpToolFilter, tool: ServedTool) -> bool:
    if wanted.tool_names is not UNSET and tool.definition.name not in wanted.tool_names:
        return False
    return wanted.read_only is UNSET or bool(tool.hints.get("readOnlyHint")) == wanted.read_only


def new_listings(
    requested: RequestTools, context: Sequence[items.Item]
) -> list[items.McpListTools]:
    """The tool lists that the response shows: of the servers that the conversation so far has no list of."""
    shown = {
        item.server_label
        for item in context
        if isinstance(item, items.McpListTools) and not item.error
    }
    return [
        listed.listing() for listed in requested.named.values() if listed.server.label not in shown
    ]


# Approvals.


class ApprovedCall(Struct, frozen=True):
    """A call that the model made in an earlier response, and the client has approved in this request."""

    request_id: str
    name: str
    """As the model is told."""
    arguments: str


def approved_calls(
    own: Sequence[items.Item],
    history: Sequence[items.Item],
    told_names: Mapping[tuple[str, str], str],
) -> list[ApprovedCall]:
    """The calls that `own` approves and that were not run yet.

    `told_names` has the tools of this request, by server label and name. Raises `InvalidRequest` for an answer to what was
    not asked, and for a tool that this request does not offer.
    """
    answers = {
        index: item for index, item in enumerate(own) if isinstance(item, items.McpApprovalResponse)
    }
    if not answers:
        return []
    context = [*history, *own]
    asked = {item.id: item for item in context if isinstance(item, items.McpApprovalRequest)}
    settled = {item.approval_request_id for item in context if isinstance(item, items.McpCall)}
    settled |= {item.approval_request_id for item in answers.values() if not item.approve}
    approved: list[ApprovedCall] = []
    for index, answer in answers.items():
        request = asked.get(answer.approval_request_id)
        if request is None:
            raise InvalidRequest(
                f"No approval request has the id '{answer.approval_request_id}' in this conversation. Send the "
                "mcp_approval_request with it, or name the response that holds it as previous_response_id.",
                param=f"input[{index}].approval_request_id",
                code="approval_request_not_found",
            )
        if request.id in settled:
            continue
        settled.add(request.id)
        name = told_names.get((request.server_label, request.name))
        if name is None:
            raise InvalidRequest(
                f"The approved tool '{request.name}' of the server '{request.server_label}' is not among the tools of "
                "this request. Send the same tools as in the request that asked.",
                param=f"input[{index}].approval_request_id",
                code="approved_tool_not_offered",
            )
        approved.append(ApprovedCall(request.id, name, request.arguments))
    return approved


# Secrets.


def without_credentials(tools: Sequence[wire.Tool]) -> list[wire.Tool]:
    """`tools` as they may be shown, stored and logged: without what authorizes at an MCP server."""
    return [_without(tool) if isinstance(tool, wire.McpTool) else tool for tool in tools]


def items_without_credentials(own: Sequence[items.Item]) -> list[items.Item]:
    """Likewise, for items that bring tools."""
    return [
        msgspec.structs.replace(item, tools=without_credentials(item.tools))
        if isinstance(item, items.AdditionalTools | items.ToolSearchOutput)
        else item
        for item in own
    ]


def _without(tool: wire.McpTool) -> wire.McpTool:
    url = tool.server_url
    return msgspec.structs.replace(
        tool,
        authorization=UNSET,
        headers=UNSET,
        server_url=_bare(url) if isinstance(url, str) else UNSET,
    )


def _bare(url: str) -> str:
    """A URL without user, password, query and fragment, any of which may hold a token."""
    url = url.partition("#")[0].partition("?")[0]
    scheme, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"
