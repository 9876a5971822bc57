"""The commands that plugins register with `gateway_register_commands`."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import NoReturn

from gateway.base.errors import ConfigurationError
from gateway.base.packages import how_to_install, names_of, package_of
from gateway.commands.arguments import Commands
from gateway.config import PluginsConfig
from gateway.plugins.checks import one_line
from gateway.plugins.hookspecs import MakeCommand, Offer, RunCommand
from gateway.plugins.loading import PluginSet, installed_plugins, load_plugins


def plugins_with(command: str | None) -> PluginSet:
    """Load the plugins in which to look up `command`: only the plugin of that name if it registers the command,
    otherwise all. None loads all."""
    if command in {each.name for each in installed_plugins()}:
        found = load_plugins(PluginsConfig(allow=[str(command)]), strict=False)
        if command in found.names("command"):
            return found
    return load_plugins(strict=False)


def add_commands(commands: Commands, plugins: PluginSet, complete: Callable[[str], bool]) -> None:
    """Add the commands of `plugins` to the command line. Commands for which `complete` is false get no arguments, which
    a list of the commands does not need. Raises `ConfigurationError` if a plugin cannot add its arguments."""
    for offer in plugins.offers("command"):
        parser = commands.add_parser(offer.name, help=offer.summary)
        if complete(offer.name):
            parser.set_defaults(command=_made(offer, parser))


def _made(offer: Offer[MakeCommand], parser: argparse.ArgumentParser) -> RunCommand:
    """Let the plugin add its arguments. Returns the function that runs the command; it raises `ConfigurationError` for
    any error except a closed pipe and a full disk, which are not the plugin's fault."""
    try:
        run = offer.make(parser)
    except Exception as error:  # a third-party plugin may raise anything
        _fail(offer, "cannot be used", error)
    if not callable(run):
        raise ConfigurationError(f"{_name(offer)} cannot be used: its function returned {run!r}")

    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except BrokenPipeError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            _fail(offer, "failed", error)

    return guarded


def _name(offer: Offer[MakeCommand]) -> str:
    owner = f"{offer.distribution} {offer.version}".strip()
    return f"the command {offer.name!r} of the plugin {offer.plugin!r} ({owner})"


def _fail(offer: Offer[MakeCommand], how: str, error: Exception) -> NoReturn:
    if isinstance(error, ConfigurationError):
        raise error
    place = extract_tb(error.__traceback__)[-1]
    raise ConfigurationError(
        f"{_name(offer)} {how}: {type(error).__name__}: {one_line(str(error))} ({Path(place.filename).name}, line {place.lineno})"
    ) from error


def check_known(command: str, plugins: PluginSet) -> None:
    """Raise `ConfigurationError` if `command` belongs to a plugin that is not installed, or not loaded."""
    for failure in plugins.failures:
        if failure.plugin.name == command:
            raise ConfigurationError(
                f"the plugin {command!r} ({failure.plugin}) is installed but not loaded: {failure.reason}"
            )
    if package := package_of("command", command):
        raise ConfigurationError(
            f"the command {command!r} is not installed;{how_to_install(package)}"
        )


def command_names(plugins: PluginSet) -> list[str]:
    """The names of the commands of plugins, including those of this project's packages that are not installed."""
    return sorted({*plugins.names("command"), *names_of("command")})
