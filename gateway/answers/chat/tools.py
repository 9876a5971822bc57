"""The tools that the configuration makes available in chat completions (`server.chat_tools`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.base.errors import ConfigurationError, GatewayError
from gateway.config import Config
from gateway.plugins.protocols import SessionContext, ToolServer
from gateway.tools.fitting import checked
from gateway.wire.tools import decode_tools


def check_chat_tools(config: Config) -> None:
    """Raise `ConfigurationError` for a name in `server.chat_tools` that has no table in `[tools]`."""
    for name in config.server.chat_tools:
        if name not in config.tools and name.partition(".")[0] not in config.tools:
            raise ConfigurationError(
                f"server.chat_tools names '{name}', but there is no table [tools.{name}]: add it, or leave the name out."
            )


def chat_servers_of(
    name: str, servers: ToolServer, chat_tools: Sequence[str]
) -> list[Callable[[], Sequence[ToolServer]]]:
    """Select tool servers from `servers`, which the configuration calls `name`. In `chat_tools`, `name` selects the
    servers that every request has, and `name.label` selects a single one.

    Raises `ConfigurationError` for a server that cannot be offered.
    """
    found: list[Callable[[], Sequence[ToolServer]]] = []
    for wanted in chat_tools:
        own_name, _, label = wanted.partition(".")
        if wanted == name:
            found.append(servers.offered)
        elif own_name == name:
            found.append(_labelled_server(wanted, servers, label))
    return found


def _labelled_server(
    wanted: str, servers: ToolServer, label: str
) -> Callable[[], Sequence[ToolServer]]:
    """Return a function that returns the server that a request would select by `label`."""
    try:
        [entry] = decode_tools([{"type": servers.request_type, "server_label": label}])
        server = checked(servers, SessionContext(entry=entry))
    except GatewayError as error:
        raise ConfigurationError(
            f"server.chat_tools names '{wanted}', which cannot be offered: {error.message}"
        ) from None
    return lambda: [server]
