"""Adapting tool servers to one request: to its entry in `tools`, its conversation and its owner."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import msgspec

from gateway.base.errors import ParamPath, renamed_params
from gateway.plugins.protocols import SessionContext, ToolServer
from gateway.tools.available import BoundTool


def checked(server: ToolServer, context: SessionContext, param: ParamPath = ()) -> ToolServer:
    """The server that a request uses in place of `server`, after `server` has accepted the request.

    Raises `GatewayError` with a parameter below `param`, the position of the context's entry.
    """
    with below(param):
        return server.check(context) or server


def below(param: ParamPath) -> AbstractContextManager[None]:
    """A context in which the parameters of errors are below `param`."""
    return renamed_params(lambda path: (*param, *path))


def fitted(
    runnable: Sequence[BoundTool], context: SessionContext, param: ParamPath = ()
) -> list[BoundTool]:
    """The tools in `runnable`, with their servers replaced as by `checked`. Raises the same errors."""
    servers: dict[int, ToolServer] = {}
    for each in runnable:
        if id(each.server) not in servers:
            servers[id(each.server)] = checked(each.server, context, param)
    return [
        msgspec.structs.replace(each, server=servers[id(each.server)], context=context)
        for each in runnable
    ]
