"""`gateway serve`."""

from __future__ import annotations

import argparse
import logging
import os
from typing import get_args

from gateway.commands.arguments import MODELS, Commands, add_config_argument
from gateway.config import LogFormat, LogLevel
from gateway.config.redaction import secrets_of
from gateway.config.reloading import ConfigSource
from gateway.plugins.loading import load_plugins
from gateway.process.first_process import leave_first_process
from gateway.process.logs import set_up_logging
from gateway.startup.selection import check_configuration

logger = logging.getLogger("gateway.serve")


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "serve",
        help="serve models",
        description="Serve the models of the configuration, or those that are named here. A model of the hub is\n"
        "downloaded into the cache that all libraries of the hub share.",
        epilog=MODELS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="see below")
    parser.add_argument("--engine", metavar="NAME", help="the engine (default: by what MODEL is)")
    add_config_argument(parser)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port; 0 for any free one (default: 8000)")
    parser.add_argument(
        "--unix-socket", metavar="PATH", help="a Unix socket to listen on, in place of an address"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="server processes (default: 1)")
    parser.add_argument("--log-level", choices=get_args(LogLevel), help="(default: info)")
    parser.add_argument("--log-format", choices=get_args(LogFormat), help="(default: text)")
    parser.set_defaults(command=serve)


def serve(arguments: argparse.Namespace) -> int:
    """Check the whole configuration, then serve until stopped."""
    leave_first_process()
    source = ConfigSource(
        path=arguments.config,
        server={
            "host": arguments.host,
            "port": arguments.port,
            "unix_socket": arguments.unix_socket,
            "workers": arguments.workers,
            "log_level": arguments.log_level,
            "log_format": arguments.log_format,
        },
        models=arguments.models,
        engine=arguments.engine,
    )
    config = source.read()
    set_up_logging(
        config.server.log_level,
        secrets_of(config, os.environ),
        log_format=config.server.log_format,
    )
    plugins = load_plugins(config.plugins)
    for plan in check_configuration(config, plugins).models:
        logger.info("opening %s with the engine %s (%s)", plan.name, plan.engine.name, plan.why)
    # Imported here because the server imports the whole web framework, which other commands do not need.
    from gateway.process.server import run

    return run(config, plugins, source)
