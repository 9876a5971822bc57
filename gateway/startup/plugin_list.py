"""Lists what the installed plugins offer, and what a configuration selects."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from gateway.base.errors import ConfigurationError
from gateway.config import Config
from gateway.plugins.hookspecs import Offer
from gateway.plugins.loading import PluginSet
from gateway.startup.model_plan import resolve_model
from gateway.startup.selection import resolve_apis, resolve_resources
from gateway.wire.inventory import ListedPlugin


def list_plugins(plugins: PluginSet, config: Config | None) -> list[ListedPlugin]:
    """All offers, all plugins that only have other hooks, and all failures. `config` determines which offers are
    selected."""
    selected = selected_offers(config, plugins) if config is not None else set()
    rows = [
        ListedPlugin(
            kind=offer.kind,
            name=offer.name,
            aliases=plugins.aliases(offer),
            plugin=offer.plugin,
            distribution=offer.distribution,
            version=offer.version,
            state=_state(offer, selected),
            note=offer.summary,
        )
        for offer in plugins.offers()
    ]
    for info in plugins.plugins:
        if hooks := plugins.hooks_of(info):
            rows.append(
                ListedPlugin(
                    kind="hooks",
                    name=info.name,
                    plugin=info.name,
                    distribution=info.distribution,
                    version=info.version,
                    state="active",
                    note=", ".join(hooks),
                )
            )
    for failure in plugins.failures:
        rows.append(
            ListedPlugin(
                kind="-",
                name=failure.plugin.name,
                plugin=failure.plugin.name,
                distribution=failure.plugin.distribution,
                version=failure.plugin.version,
                state="off" if failure.wanted else "failed",
                note=failure.reason,
            )
        )
    return rows


def _state(offer: Offer[Any], selected: Collection[tuple[str, str]]) -> str:
    if offer.kind == "command":
        return "active"
    return "selected" if (offer.kind, offer.name) in selected else "available"


def selected_offers(config: Config, plugins: PluginSet) -> set[tuple[str, str]]:
    """Kind and name of each offer that the configuration selects, as far as known without opening a model.

    Errors in the configuration are ignored, because this is used for listings.
    """
    chosen: list[Offer[Any]] = []
    for name, model in config.models.items():
        with suppress(ConfigurationError):
            chosen.append(resolve_model(name, model, plugins).engine)
        if model.renderer is not None:
            with suppress(ConfigurationError):
                chosen.append(plugins.renderer(model.renderer))
        if model.parser is not None:
            with suppress(ConfigurationError):
                chosen.append(plugins.parser(model.parser))
    for name in config.tools:
        with suppress(ConfigurationError):
            chosen.append(plugins.tool(name))
    for name in config.authenticators:
        with suppress(ConfigurationError):
            chosen.append(plugins.authenticator(name))
    for name in config.routers:
        with suppress(ConfigurationError):
            chosen.append(plugins.router(name))
    for name in config.policies:
        with suppress(ConfigurationError):
            chosen.append(plugins.policy(name))
    with suppress(ConfigurationError):
        chosen += (offer for offer, _ in resolve_apis(config, plugins))
        chosen += (offer for offer, _ in resolve_resources(config, plugins))
    if config.server.store != "none":
        with suppress(ConfigurationError):
            chosen.append(plugins.store(config.server.store))
    return {(offer.kind, offer.name) for offer in chosen}
