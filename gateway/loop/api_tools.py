"""The tools of a request from a plugin's API."""

from __future__ import annotations

import msgspec

from gateway.errors import InvalidRequest
from gateway.protocols import GenerationRequest, SessionContext
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.tools.requested import ListedServer, RequestTools, list_request_tools
from gateway.tools.toolset import Toolset, build_toolset


def asks_for_tools(ask: GenerationRequest) -> bool:
    """Whether the request has gateway-side `tools`. Otherwise the tools are its turn's, and the gateway runs none."""
    return bool(ask.tools) or ask.tool_choice is not None or ask.offers_tools


async def api_toolset(ask: GenerationRequest, model: ServedModel, services: Services) -> Toolset:
    """Resolve the tools of a request. Raises like `Gateway.prepare`."""
    if not asks_for_tools(ask):
        return Toolset()
    offered = services.tools_of(model)
    context = SessionContext(owner=ask.owner, items=ask.turn.items)
    requested = await list_request_tools(ask.tools, offered.choices, context)
    if not ask.offers_tools:
        offered = msgspec.structs.replace(offered, always=())
        requested = msgspec.structs.replace(requested, offered=())
    toolset = build_toolset(
        ask.tools,
        ask.tool_choice,
        offered,
        _usable(requested, ask),
        renderer=model.renderer,
        context=context,
    )
    services.omitted_tools.report(toolset.omitted)
    return toolset


def _usable(requested: RequestTools, ask: GenerationRequest) -> RequestTools:
    """The servers with only their usable tools. Raises for a server that could not list its tools."""
    for index, listed in requested.named.items():
        if listed.error is not None:
            raise InvalidRequest(
                f"The server '{listed.server.label}' cannot be used: {listed.error}",
                param=("tools", index),
                code="mcp_server_unavailable",
            )
    return RequestTools(
        named={index: _allowed(listed, ask) for index, listed in requested.named.items()},
        offered=[_allowed(listed, ask) for listed in requested.offered],
    )


def _allowed(listed: ListedServer, ask: GenerationRequest) -> ListedServer:
    """Remove tools that need approval, which such an API cannot give, and tools that the request denies."""
    label = listed.server.label
    return msgspec.structs.replace(
        listed,
        tools=[
            tool
            for tool in listed.tools
            if tool.definition.name not in listed.needs_approval
            and (label, tool.definition.name) not in ask.denied_tools
        ],
    )
