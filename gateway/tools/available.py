"""The tools that the configuration makes available to requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ModelConfig
from gateway.config.tables import dotted, suggestion
from gateway.plugins.protocols import Principal, ServerTool, SessionContext, ToolServer
from gateway.wire.tools import Tool, WebSearchTool, type_of

_WEB_SEARCH = type_of(WebSearchTool)
_VARIANTS = {_WEB_SEARCH: [type_of(each) for each in WebSearchTool.__subclasses__()]}


class BoundTool(Struct, frozen=True):
    """A tool that the gateway can run, with its server."""

    server: ToolServer
    tool: ServerTool
    context: SessionContext = SessionContext()
    """The request, as tool sessions see it."""


class AvailableTools(Struct, frozen=True):
    """The tools available to requests, by the type that selects them."""

    by_type: Mapping[str, Sequence[BoundTool]] = {}
    always: Sequence[BoundTool] = ()
    """Offered to the model in every request."""
    choices: Mapping[str, ToolServer] = {}
    """Servers with a `request_type`, by that type."""
    chat: Sequence[BoundTool] = ()
    """Offered to the model in Chat Completions, whose requests cannot select tools of the gateway."""
    chat_servers: Sequence[Callable[[], Sequence[ToolServer]]] = ()
    """Servers offered in Chat Completions whose tools are listed at each request."""
    unavailable: Literal["refuse", "omit"] = "refuse"
    """How to treat a requested tool type that the gateway would have to run and that is not configured."""
    forbidden: frozenset[str] = frozenset()
    """Tool types that are configured, but that this principal may not use."""


def request_type(tool: Tool) -> str:
    """The type by which tools are selected. Dated and preview variants of web search are the same type."""
    return _WEB_SEARCH if isinstance(tool, WebSearchTool) else type_of(tool)


def with_variants(kind: str) -> Sequence[str]:
    """The types of entries whose `request_type` is `kind`."""
    return [kind, *_VARIANTS.get(kind, ())]


def check_allowed_tools(config: Config) -> None:
    """Raise `ConfigurationError` if a model's `allowed_tools` names a tool that has no table in `[tools]`."""
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
    tables: Mapping[str, AvailableTools],
    unavailable: Literal["refuse", "omit"],
) -> AvailableTools:
    """The tools of `tables` (keyed as in `[tools.<name>]`) that the model `name` may use.

    Raises `ConfigurationError` if two tools that are offered in every request have the same name.
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
    return AvailableTools(
        by_type=_by_type(used),
        always=always,
        choices={kind: server for table in used for kind, server in table.choices.items()},
        chat=[entry for table in used for entry in table.chat],
        chat_servers=[servers for table in used for servers in table.chat_servers],
        unavailable=unavailable,
    )


def permitted_to(
    principal: Principal | None,
    name: str,
    model: ModelConfig,
    tables: Mapping[str, AvailableTools],
    whole: AvailableTools,
) -> AvailableTools:
    """The tools of `whole` that `principal` may use. `whole` is the result of `offered_to` for the same model and
    tables."""
    if principal is None or principal.tools is None:
        return whole
    own = {key: table for key, table in tables.items() if key in principal.tools}
    left = offered_to(name, model, own, whole.unavailable)
    had = {*whole.by_type, *whole.choices}
    return msgspec.structs.replace(left, forbidden=frozenset(had - {*left.by_type, *left.choices}))


def _by_type(tables: Iterable[AvailableTools]) -> dict[str, list[BoundTool]]:
    merged: dict[str, list[BoundTool]] = {}
    for table in tables:
        for kind, entries in table.by_type.items():
            merged.setdefault(kind, []).extend(entries)
    return merged
