"""The tools of a request from a plugin's API."""

from __future__ import annotations

import msgspec

from gateway.base.errors import InvalidRequest
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import GenerationRequest, SessionContext
from gateway.services import Services
from gateway.tools.requested import ListedServer, RequestTools, list_request_tools
from gateway.tools.toolset import Toolset, build_toolset


def asks_for_tools(request: GenerationRequest) -> bool:
    """Whether the request selects tools by the gateway's rules. If not, its turn defines the tools, and the gateway
    runs none."""
    return bool(request.tools) or request.tool_choice is not None or request.offers_tools


async def api_toolset(
    request: GenerationRequest, model: ServedModel, services: Services
) -> Toolset:
    """Resolve the tools of a request. Raises like `Gateway.prepare`."""
    if not asks_for_tools(request):
        return Toolset()
    offered = services.tools_of(model)
    context = SessionContext(owner=request.owner, items=request.turn.items)
    requested = await list_request_tools(
        request.tools, offered.choices, context, builtins=offered.by_type
    )
    if not request.offers_tools:
        offered = msgspec.structs.replace(offered, always=())
        requested = msgspec.structs.replace(requested, offered=())
    toolset = build_toolset(
        request.tools,
        request.tool_choice,
        offered,
        _usable(requested, request),
        renderer=model.renderer,
        context=context,
    )
    services.omitted_tools.report(toolset.omitted)
    return toolset


def _usable(requested: RequestTools, request: GenerationRequest) -> RequestTools:
    """Return the servers with their usable tools only. Raises `InvalidRequest` for a server that could not list its
    tools."""
    for index, listed in requested.named.items():
        if listed.error is not None:
            raise InvalidRequest(
                f"The server '{listed.server.label}' cannot be used: {listed.error}",
                param=("tools", index),
                code="mcp_server_unavailable",
            )
    return RequestTools(
        named={index: _allowed(listed, request) for index, listed in requested.named.items()},
        offered=[_allowed(listed, request) for listed in requested.offered],
    )


def _allowed(listed: ListedServer, request: GenerationRequest) -> ListedServer:
    """Remove tools that need approval, which plugins' APIs do not support, and tools that the request denies."""
    label = listed.server.label
    return msgspec.structs.replace(
        listed,
        tools=[
            tool
            for tool in listed.tools
            if tool.definition.name not in listed.needs_approval
            and (label, tool.definition.name) not in request.denied_tools
        ],
    )
