"""The tools that the configuration lets requests use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gateway.config import Config, ModelConfig
from gateway.config.tables import dotted, suggestion
from gateway.errors import ConfigurationError
from gateway.protocols import ServedTool, ToolServer, ToolServers


class RunnableTool(Struct, frozen=True):
    """A tool that the gateway runs, with the server that runs it."""

    server: ToolServer
    tool: ServedTool


class OfferedTools(Struct, frozen=True):
    """The tools that requests may use: by the type that a request names them with."""

    by_type: Mapping[str, Sequence[RunnableTool]] = {}
    always: Sequence[RunnableTool] = ()
    """Offered to the model whether a request asks or not."""
    choices: Mapping[str, ToolServers] = {}
    """Servers that requests choose from, by the type of the entries that name them."""
    chat: Sequence[RunnableTool] = ()
    """Offered to the model in Chat Completions, which cannot ask for them."""
    chat_servers: Sequence[Callable[[], Sequence[ToolServer]]] = ()
    """Likewise: servers whose tools are listed at each request."""
    unavailable: Literal["refuse", "omit"] = "refuse"
    """What comes of a tool that a request asks the gateway to run, and that is not here."""


def check_allowed_tools(config: Config) -> None:
    """Refuse names in a model's `allowed_tools` that no table of `[tools]` has. Raises `ConfigurationError`."""
    for model, settings in config.models.items():
        for name in settings.allowed_tools or ():
            if name not in config.tools:
                raise ConfigurationError(
                    f"{dotted(('models', model))}.allowed_tools: there is no table [tools.{name}]; "
                    f"{suggestion(name, config.tools)}"
                )


def offered_to(
    name: str,
    model: ModelConfig,
    tables: Mapping[str, OfferedTools],
    unavailable: Literal["refuse", "omit"],
) -> OfferedTools:
    """What the model `name` may use of the tools of `tables`, which are by their names in `[tools.<name>]`.

    Raises `ConfigurationError` where two tools of one name would be offered in every request.
    """
    allowed = tables if model.allowed_tools is None else model.allowed_tools
    used = [table for key, table in tables.items() if key in allowed]
    always = [entry for table in used for entry in table.always]
    names = [entry.tool.definition.name for entry in always]
    if twice := {each for each in names if names.count(each) > 1}:
        raise ConfigurationError(
            f"Two tool servers offer a tool named '{min(twice)}' to the model '{name}': deselect one of them in [tools], or "
            "leave it out of the model's allowed_tools."
        )
    return OfferedTools(
        by_type=_by_type(used),
        always=always,
        choices={kind: server for table in used for kind, server in table.choices.items()},
        chat=[entry for table in used for entry in table.chat],
        chat_servers=[servers for table in used for servers in table.chat_servers],
        unavailable=unavailable,
    )


def _by_type(tables: Iterable[OfferedTools]) -> dict[str, list[RunnableTool]]:
    merged: dict[str, list[RunnableTool]] = {}
    for table in tables:
        for kind, entries in table.by_type.items():
            merged.setdefault(kind, []).extend(entries)
    return merged
