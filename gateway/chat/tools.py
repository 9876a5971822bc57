"""The tools that the configuration offers to chat completions (`server.chat_tools`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.config import Config
from gateway.errors import ConfigurationError, GatewayError
from gateway.protocols import ToolServer, ToolServers
from gateway.wire.tools import decode_tools


def check_chat_tools(config: Config) -> None:
    """Refuse names that no table of `[tools]` has. Raises `ConfigurationError`."""
    for name in config.server.chat_tools:
        if name not in config.tools and name.partition(".")[0] not in config.tools:
            raise ConfigurationError(
                f"server.chat_tools names '{name}', but there is no table [tools.{name}]: add it, or leave the name out."
            )


def chat_servers_of(
    name: str, servers: ToolServers, chat_tools: Sequence[str]
) -> list[Callable[[], Sequence[ToolServer]]]:
    """What `chat_tools` offers of `servers`: by `name` those that every request has, by `name.label` one of them.

    Raises `ConfigurationError`.
    """
    found: list[Callable[[], Sequence[ToolServer]]] = []
    for wanted in chat_tools:
        own_name, _, label = wanted.partition(".")
        if wanted == name:
            found.append(servers.offered)
        elif own_name == name:
            found.append(_one(wanted, servers, label))
    return found


def _one(wanted: str, servers: ToolServers, label: str) -> Callable[[], Sequence[ToolServer]]:
    """The server that a request would name by `label`."""
    try:
        [entry] = decode_tools([{"type": servers.request_type, "server_label": label}])
        server = servers.for_request(entry, owner=None)
    except GatewayError as error:
        raise ConfigurationError(
            f"server.chat_tools names '{wanted}', which cannot be offered: {error.message}"
        ) from None
    return lambda: [server]
