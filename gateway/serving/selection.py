"""What a configuration selects: from names to offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.config import Config
from gateway.config.tables import dotted
from gateway.errors import ConfigurationError
from gateway.hookspecs import (
    Offer,
    OpenFront,
    OpenResource,
    OpenStore,
    OpenTool,
)
from gateway.plugins import PluginSet
from gateway.serving.model_plan import ModelPlan, resolve_model
from gateway.tools.offered import check_allowed_tools

STANDARD_ROUTES = ("messages",)
"""The further APIs that are served where they are installed and the configuration says nothing."""


class Selection(Struct, frozen=True, kw_only=True):
    """All that a configuration selects, checked and not open."""

    models: list[ModelPlan]
    tools: list[tuple[Offer[OpenTool], Struct]]
    store: tuple[Offer[OpenStore], Struct] | None
    routes: list[tuple[Offer[OpenFront], Struct]]
    resources: list[tuple[Offer[OpenResource], Struct]]
    """What the tools and the fronts need, each once."""


def select(config: Config, plugins: PluginSet) -> Selection:
    """Check everything that can be checked without opening anything. Raises `ConfigurationError`."""
    try:
        check_allowed_tools(config)
        return Selection(
            models=[resolve_model(name, model, plugins) for name, model in config.models.items()],
            tools=[resolve_tool(name, config, plugins) for name in config.tools],
            store=resolve_store(config, plugins),
            routes=resolve_routes(config, plugins),
            resources=resolve_resources(config, plugins),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{config.source}: {error}") from error


def resolve_tool(name: str, config: Config, plugins: PluginSet) -> tuple[Offer[OpenTool], Struct]:
    """The tool server that `[tools.<name>]` selects, with its config."""
    where = dotted(("tools", name))
    offer = plugins.tool(name, where)
    return offer, plugins.decode_config(offer, config.tools[name], where)


def resolve_store(config: Config, plugins: PluginSet) -> tuple[Offer[OpenStore], Struct] | None:
    """The store that `server.store` names, with its config; None for `none`."""
    for name in config.stores:
        plugins.store(name, dotted(("stores", name)))
    name = config.server.store
    if name == "none":
        return None
    offer = plugins.store(name, "server.store")
    where = dotted(("stores", name))
    return offer, plugins.decode_config(offer, config.stores.get(name, {}), where)


def resolve_routes(config: Config, plugins: PluginSet) -> list[tuple[Offer[OpenFront], Struct]]:
    """The further APIs that `server.routes` names, each with its config.

    Where it is silent: the standard ones, and those that come with the selected tools and with the resources that these
    need, under their names.
    """
    for name in config.routes:
        plugins.route(name, dotted(("routes", name)))
    names = config.server.routes
    if names is None:
        installed = plugins.names("route")
        needed = (each for name in config.tools for each in plugins.needs("tool", name))
        wanted = dict.fromkeys((*STANDARD_ROUTES, *config.tools, *needed))
        names = [name for name in wanted if name in installed]
    resolved: list[tuple[Offer[OpenFront], Struct]] = []
    for index, name in enumerate(names):
        offer = plugins.route(name, f"server.routes[{index}]")
        if any(offer is each for each, _ in resolved):
            raise ConfigurationError(
                f"server.routes[{index}]: {name!r} is named twice; keep one of them."
            )
        table = config.routes.get(name, {})
        where = dotted(("routes", name))
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def resolve_resources(
    config: Config, plugins: PluginSet
) -> list[tuple[Offer[OpenResource], Struct]]:
    """What the selected tools and fronts need, each with its config and each once."""
    for name in config.resources:
        plugins.resource(name, dotted(("resources", name)))
    users: dict[str, str] = {}
    for tool in config.tools:
        for name in plugins.needs("tool", tool):
            users.setdefault(name, dotted(("tools", tool)))
    for front, _ in resolve_routes(config, plugins):
        for name in front.needs:
            users.setdefault(name, f"the front {front.name!r}")
    resolved: list[tuple[Offer[OpenResource], Struct]] = []
    for name, user in users.items():
        offer = plugins.resource(name, user)
        where = dotted(("resources", name))
        table = config.resources.get(name, {})
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def needed(offer: Offer[Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """What of the open `resources` the tool or front of `offer` is given."""
    return {name: resources[name] for name in offer.needs}
