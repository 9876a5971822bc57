"""Resolves the names in a configuration to offers of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from gateway.access.access import check_access
from gateway.answers.chat.tools import check_chat_tools
from gateway.base.errors import ConfigurationError
from gateway.config import Config
from gateway.config.tables import dotted
from gateway.plugins.hookspecs import (
    ChosenModel,
    ChosenPlugins,
    Offer,
    OpenApiPlugin,
    OpenAuthenticator,
    OpenPolicy,
    OpenResource,
    OpenRouter,
    OpenStore,
    OpenTool,
)
from gateway.plugins.loading import PluginSet
from gateway.startup.model_plan import ModelPlan, resolve_model
from gateway.startup.settings import check_settings
from gateway.tools.available import check_allowed_tools

T = TypeVar("T")

STANDARD_APIS = ("messages", "console")
"""Further APIs that are served by default if they are installed."""


class Selection(Struct, frozen=True, kw_only=True):
    """Everything that a configuration selects. It is checked, but not open."""

    models: list[ModelPlan]
    tools: list[tuple[Offer[OpenTool], Struct]]
    store: tuple[Offer[OpenStore], Struct] | None
    apis: list[tuple[Offer[OpenApiPlugin], Struct]]
    resources: list[tuple[Offer[OpenResource], Struct]]
    """The resources that the tools and APIs need, each once."""
    routers: list[tuple[Offer[OpenRouter], Struct]] = []
    authenticators: list[tuple[Offer[OpenAuthenticator], Struct]] = []
    policies: list[tuple[Offer[OpenPolicy], Struct]] = []


def select(config: Config, plugins: PluginSet) -> Selection:
    """Check everything that can be checked without opening it. Raises `ConfigurationError`."""
    try:
        selection = resolve(config, plugins)
        check_together(selection, plugins)
    except ConfigurationError as error:
        raise ConfigurationError(f"{config.source}: {error}") from error
    return selection


def resolve(config: Config, plugins: PluginSet) -> Selection:
    """Resolve all names and decode all tables, without checking how they fit together. Raises `ConfigurationError`."""
    check_allowed_tools(config)
    check_chat_tools(config)
    return Selection(
        models=[
            resolve_model(name, model, plugins, workers=config.server.workers)
            for name, model in config.models.items()
        ],
        tools=[resolve_tool(name, config, plugins) for name in config.tools],
        store=resolve_store(config, plugins),
        apis=resolve_apis(config, plugins),
        resources=resolve_resources(config, plugins),
        authenticators=[
            resolve_authenticator(name, config, plugins) for name in config.authenticators
        ],
        routers=[resolve_router(name, config, plugins) for name in config.routers],
        policies=[resolve_policy(name, config, plugins) for name in config.policies],
    )


def check_configuration(config: Config, plugins: PluginSet) -> Selection:
    """Check the configuration and the files that it names without opening anything. The server does this first when it
    starts; `gateway config check` does nothing else. Raises `ConfigurationError`."""
    check_settings(config)
    check_access(config.server, authenticated=bool(config.authenticators))
    return select(config, plugins)


def check_together(selection: Selection, plugins: PluginSet) -> None:
    """Let the plugins check what is selected. Raises `ConfigurationError`."""
    offers: list[tuple[Offer[Any], Struct]] = [
        *selection.tools,
        *selection.apis,
        *selection.resources,
        *selection.routers,
        *selection.authenticators,
        *selection.policies,
        *((selection.store,) if selection.store is not None else ()),
    ]
    chosen = ChosenPlugins(
        models=[
            ChosenModel(context=each.context, engine=each.engine.name, config=each.engine_config)
            for each in selection.models
        ],
        tables={(offer.kind, offer.name): table for offer, table in offers},
    )
    try:
        plugins.hook.gateway_check_configuration(chosen=chosen)
    except ConfigurationError:
        raise
    except Exception as error:  # a third-party hook may raise anything
        raise ConfigurationError(
            f"A plugin's check of the configuration has failed: {type(error).__name__}: {error}"
        ) from error


def resolve_tool(name: str, config: Config, plugins: PluginSet) -> tuple[Offer[OpenTool], Struct]:
    """The tool server selected by `[tools.<name>]`, with its config."""
    return _resolve("tools", name, config.tools, plugins.tool, plugins)


def resolve_authenticator(
    name: str, config: Config, plugins: PluginSet
) -> tuple[Offer[OpenAuthenticator], Struct]:
    """The authenticator selected by `[authenticators.<name>]`, with its config."""
    return _resolve("authenticators", name, config.authenticators, plugins.authenticator, plugins)


def resolve_router(
    name: str, config: Config, plugins: PluginSet
) -> tuple[Offer[OpenRouter], Struct]:
    """The router selected by `[routers.<name>]`, with its config."""
    return _resolve("routers", name, config.routers, plugins.router, plugins)


def resolve_policy(
    name: str, config: Config, plugins: PluginSet
) -> tuple[Offer[OpenPolicy], Struct]:
    """The policy selected by `[policies.<name>]`, with its config."""
    return _resolve("policies", name, config.policies, plugins.policy, plugins)


def _resolve(
    section: str,
    name: str,
    tables: Mapping[str, Mapping[str, Any]],
    find: Callable[[str, str], Offer[T]],
    plugins: PluginSet,
) -> tuple[Offer[T], Struct]:
    where = dotted((section, name))
    offer = find(name, where)
    return offer, plugins.decode_config(offer, tables[name], where)


def resolve_store(config: Config, plugins: PluginSet) -> tuple[Offer[OpenStore], Struct] | None:
    """The store named by `server.store`, with its config; None for `none`."""
    for name in config.stores:
        plugins.store(name, dotted(("stores", name)))
    name = config.server.store
    if name == "none":
        return None
    offer = plugins.store(name, "server.store")
    where = dotted(("stores", name))
    return offer, plugins.decode_config(offer, config.stores.get(name, {}), where)


def resolve_apis(config: Config, plugins: PluginSet) -> list[tuple[Offer[OpenApiPlugin], Struct]]:
    """The further APIs named by `server.apis`, each with its config.

    If `server.apis` is not set, these are the standard APIs, APIs that have a table, and APIs with the name of a
    selected tool, of a resource that such a tool needs, or of a resource that has a table.
    """
    for name in config.apis:
        plugins.api(name, dotted(("apis", name)))
    names = config.server.apis
    if names is None:
        installed = plugins.names("api")
        required = (each for name in config.tools for each in plugins.needs("tool", name))
        wanted = dict.fromkeys(
            (*STANDARD_APIS, *config.tools, *required, *config.resources, *config.apis)
        )
        names = [name for name in wanted if name in installed]
    resolved: list[tuple[Offer[OpenApiPlugin], Struct]] = []
    for index, name in enumerate(names):
        offer = plugins.api(name, f"server.apis[{index}]")
        if any(offer is each for each, _ in resolved):
            raise ConfigurationError(
                f"server.apis[{index}]: {name!r} is named twice; keep one of them."
            )
        if offer.needs_tool and offer.name not in config.tools:
            tool = dotted(("tools", offer.name))
            raise ConfigurationError(
                f"server.apis[{index}]: the API {name!r} needs the tool: add a table [{tool}]."
                if config.server.apis is not None
                else f"The API {name!r} needs the tool: add a table [{tool}]."
            )
        table = config.apis.get(name, {})
        where = dotted(("apis", name))
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def resolve_resources(
    config: Config, plugins: PluginSet
) -> list[tuple[Offer[OpenResource], Struct]]:
    """The resources that the selected tools and APIs need, each once, with its config."""
    for name in config.resources:
        plugins.resource(name, dotted(("resources", name)))
    users: dict[str, str] = {}
    for tool in config.tools:
        for name in plugins.needs("tool", tool):
            users.setdefault(name, dotted(("tools", tool)))
    for api, _ in resolve_apis(config, plugins):
        for name in api.needs:
            users.setdefault(name, f"the API {api.name!r}")
    resolved: list[tuple[Offer[OpenResource], Struct]] = []
    for name, user in users.items():
        offer = plugins.resource(name, user)
        where = dotted(("resources", name))
        table = config.resources.get(name, {})
        resolved.append((offer, plugins.decode_config(offer, table, where)))
    return resolved


def needed_resources(offer: Offer[Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """The subset of the open `resources` that the tool or API of `offer` receives."""
    return {name: resources[name] for name in offer.needs}
