"""The command `gateway`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from gateway.cli import (
    batch,
    cache,
    chat,
    completion,
    config,
    conform,
    doctor,
    install,
    key,
    models,
    new,
    plugins,
    reload,
    serve,
    usage,
)
from gateway.errors import ConfigurationError

EPILOG = """\
Settings come from the file that --config or GATEWAY_CONFIG names, else from ./gateway.toml, else from built-in defaults
(the embedded engine with its tiny model). Variables such as GATEWAY_SERVER__PORT=8001 replace the file's settings, and
the command line replaces both.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: for an error, one sentence is printed to stderr and the code is 2; Ctrl-C
    gives 130."""
    arguments = argument_parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except ConfigurationError as error:
        print(f"gateway: {sentence(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (`head`, for example) has closed the pipe
        # Otherwise the interpreter's final flush of stdout fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        lines = [f"litegate {metadata.version('litegate')} (Python {platform.python_version()})"]
        lines += (f"  {line}" for line in plugins.versions())
        print("\n".join(lines))
        parser.exit()


def sentence(text: str) -> str:
    """`text` with a final full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def argument_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="Litegate: one OpenAI-compatible endpoint in front of the LLM engines that you host.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help="show the versions of the gateway and its plugins",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (
        serve, reload, chat, batch, models, cache, config, plugins, install, doctor, conform, new, key, usage,
    ):  # fmt: skip
        module.add_to(commands)
    completion.add_to(commands, argument_parser)
    return parser
