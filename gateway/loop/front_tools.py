"""The tools of a front's answer."""

from __future__ import annotations

import msgspec

from gateway.errors import InvalidRequest
from gateway.protocols import Ask
from gateway.serving.served import ServedModel, Services
from gateway.tools.requested import ListedServer, RequestTools, list_request_tools
from gateway.tools.toolset import Toolset, build_toolset


def asks_for_tools(ask: Ask) -> bool:
    """Whether the tools of `ask` are its own; otherwise they are its turn's, and the gateway runs none."""
    return bool(ask.tools) or ask.tool_choice is not None or ask.offers_tools


async def front_toolset(ask: Ask, model: ServedModel, services: Services) -> Toolset:
    """What the tools of `ask` come to. Raises as `Gateway.prepare` does."""
    if not asks_for_tools(ask):
        return Toolset()
    offered = services.offered_tools[model.name]
    requested = await list_request_tools(ask.tools, offered.choices, owner=ask.owner)
    if not ask.offers_tools:
        offered = msgspec.structs.replace(offered, always=())
        requested = msgspec.structs.replace(requested, offered=())
    toolset = build_toolset(
        ask.tools,
        ask.tool_choice,
        offered,
        _usable(requested, ask),
        renderer=model.renderer,
        owner=ask.owner,
    )
    services.omitted_tools.tell(toolset.omitted)
    return toolset


def _usable(requested: RequestTools, ask: Ask) -> RequestTools:
    """The servers with those of their tools that may be called. Raises for one that could not list them."""
    for index, listed in requested.named.items():
        if listed.error is not None:
            raise InvalidRequest(
                f"The server '{listed.server.label}' cannot be used: {listed.error}",
                param=f"tools[{index}]",
                code="mcp_server_unavailable",
            )
    return RequestTools(
        named={index: _allowed(listed, ask) for index, listed in requested.named.items()},
        offered=[_allowed(listed, ask) for listed in requested.offered],
    )


def _allowed(listed: ListedServer, ask: Ask) -> ListedServer:
    """Nobody can approve a call in a front's API: what needs it is left out, and so is what the request denies."""
    label = listed.server.label
    return ListedServer(
        server=listed.server,
        tools=[
            tool
            for tool in listed.tools
            if tool.definition.name not in listed.needs_approval
            and (label, tool.definition.name) not in ask.denied_tools
        ],
    )
