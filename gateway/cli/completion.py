"""`gateway completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands

SHELLS = ("bash", "zsh", "tcsh")


def add_to(commands: Commands, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command to the command line that `parser` makes."""
    command = commands.add_parser(
        "completion",
        help="print a script that completes this command in a shell",
        description='Print a completion script. For bash: eval "$(gateway completion bash)" in ~/.bashrc.',
    )
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(command=lambda arguments: print_script(arguments.shell, parser()))


def print_script(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the script. Raises `ConfigurationError` if the library for it is not installed."""
    try:
        import shtab  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ConfigurationError("completion needs a package: `pip install shtab`") from error
    print(shtab.complete(parser, shell))
    return 0
