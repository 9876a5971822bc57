"""`gateway reload`."""

from __future__ import annotations

import argparse
import os
import signal

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands, add_config_argument, configuration
from gateway.config.loading import config_file
from gateway.plugins.loading import load_plugins
from gateway.startup.selection import select


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "reload",
        help="let a running server read its configuration again",
        description="Check the configuration, and send SIGHUP to the servers of this user that were started with it.\n"
        "The server's log says what changed. Models, aliases, keys, limits and tools change without a restart.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config_argument(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Signal the servers to reload, if the configuration has no mistake."""
    if os.name != "posix":
        raise ConfigurationError("This system has no SIGHUP: restart the server instead.")
    from gateway.process.pid_file import servers_of  # needs a POSIX system

    file = config_file(arguments.config, os.environ)
    if file is None:
        raise ConfigurationError("There is no configuration file: name it with --config.")
    config = configuration(arguments)
    select(config, load_plugins(config.plugins))
    servers = servers_of(file)
    if not servers:
        raise ConfigurationError(f"No server of this user runs with {file}.")
    for server in servers:
        os.kill(server, signal.SIGHUP)
        print(f"The server with process id {server} reads {file} again; its log says what changed.")
    return 0
