"""The open tool servers, and the tools that they make available to models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.access.owned import Owned
from gateway.answers.chat.tools import chat_servers_of
from gateway.base.errors import ConfigurationError
from gateway.config import Config
from gateway.plugins.checks import tool_server_mistake
from gateway.plugins.hookspecs import Offer, OpenTool
from gateway.plugins.protocols import ToolServer
from gateway.startup.selection import needed_resources
from gateway.tools.available import AvailableTools, BoundTool, offered_to


class OpenTools:
    """The open tool servers, by the names of their tables."""

    def __init__(self, resources: Mapping[str, Any]) -> None:
        """`resources` are the open resources by name."""
        self._resources = resources
        self.owned: dict[str, Owned[ToolServer]] = {}

    @property
    def servers(self) -> dict[str, ToolServer]:
        return {name: each.value for name, each in self.owned.items()}

    async def open_all(
        self, config: Config, selected: Iterable[tuple[Offer[OpenTool], Struct]]
    ) -> None:
        """Open the tool servers of `config`. Raises `ConfigurationError`."""
        for name, (offer, tool_config) in zip(config.tools, selected, strict=True):
            self.owned[name] = await self.open(offer, tool_config)

    async def open(self, offer: Offer[OpenTool], config: Struct) -> Owned[ToolServer]:
        """Open one tool server. The caller must close it. Raises `ConfigurationError`."""
        if missing := [name for name in offer.needs if name not in self._resources]:
            raise ConfigurationError(
                f"The tool '{offer.name}' needs the resource '{missing[0]}', which is opened when the server starts: restart it."
            )
        owned = Owned(offer.make(config, **needed_resources(offer, self._resources)))
        server = await owned.open()
        if mistake := tool_server_mistake(server):
            await owned.close()
            raise ConfigurationError(
                f"The tool '{offer.name}' of the plugin {offer.plugin} ({offer.distribution}) cannot be used: {mistake}"
            )
        return owned

    async def close(self) -> None:
        """Close all tool servers in reverse order of opening."""
        while self.owned:
            _, owned = self.owned.popitem()
            await owned.close()


async def tool_tables(
    config: Config, servers: Mapping[str, ToolServer]
) -> dict[str, AvailableTools]:
    """Maps the name of each tool server, as in `[tools.<name>]`, to its tools."""
    return {
        name: await _offered_by(name, server, config.server.chat_tools)
        for name, server in servers.items()
    }


def offered_tools(
    config: Config, tables: Mapping[str, AvailableTools]
) -> dict[str, AvailableTools]:
    """Maps the name of each model of the configuration to the tools that are available to it."""
    return {
        name: offered_to(name, model, tables, unavailable=config.server.unavailable_tools)
        for name, model in config.models.items()
    }


async def _offered_by(name: str, server: ToolServer, chat_tools: Sequence[str]) -> AvailableTools:
    """The tools of the server that `[tools.<name>]` selects."""
    if server.request_type is not None:
        return AvailableTools(
            choices={server.request_type: server},
            chat_servers=chat_servers_of(name, server, chat_tools),
        )
    entries = [BoundTool(server, tool) for tool in await server.tools()]
    by_type: dict[str, list[BoundTool]] = {}
    for entry in entries:
        if entry.tool.request_type is not None:
            by_type.setdefault(entry.tool.request_type, []).append(entry)
    return AvailableTools(
        by_type=by_type,
        always=[entry for entry in entries if entry.tool.request_type is None],
        chat=entries if name in chat_tools else (),
    )
