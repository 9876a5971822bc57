"""Tool servers fitted to a request: to its entry, its conversation, its owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.errors import GatewayError
from gateway.protocols import (
    ConversationToolServer,
    FittingToolServer,
    OwnedToolServer,
    ToolServer,
)
from gateway.tools.offered import RunnableTool
from gateway.wire.items import Item
from gateway.wire.tools import Tool


def fitted(
    runnable: Sequence[RunnableTool],
    tool: Tool,
    param: str,
    *,
    owner: str | None,
    items: Sequence[Item],
) -> list[RunnableTool]:
    """The tools that the entry `tool` asks for, of servers that are as it wants them.

    Raises `GatewayError`, with a parameter below `param`, where the entry is.
    """

    def fit(server: ToolServer) -> ToolServer:
        try:
            if isinstance(server, ConversationToolServer) and items:
                return server.for_conversation(tool, items, owner=owner)
            if isinstance(server, FittingToolServer):
                return server.for_entry(tool, owner=owner)
        except GatewayError as error:
            error.param = f"{param}.{error.param}" if error.param else param
            raise
        return server

    return _each_once(runnable, fit)


def owned(always: Sequence[RunnableTool], owner: str | None) -> list[RunnableTool]:
    """The tools that every request has, of servers that know whose it is."""
    return _each_once(
        always,
        lambda server: server.for_owner(owner) if isinstance(server, OwnedToolServer) else server,
    )


def _each_once(
    runnable: Sequence[RunnableTool], fit: Callable[[ToolServer], ToolServer]
) -> list[RunnableTool]:
    servers: dict[int, ToolServer] = {}
    for entry in runnable:
        if id(entry.server) not in servers:
            servers[id(entry.server)] = fit(entry.server)
    return [RunnableTool(servers[id(entry.server)], entry.tool) for entry in runnable]
