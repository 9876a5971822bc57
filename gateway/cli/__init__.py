"""The command `gateway`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from gateway.cli import doctor, key, models, new, plugins, serve
from gateway.errors import ConfigurationError

EPILOG = """\
Settings come from the file that --config or GATEWAY_CONFIG names, else from ./gateway.toml, else from built-in defaults
(the embedded engine with its tiny model). Variables such as GATEWAY_SERVER__PORT=8001 replace the file's settings, and
the command line replaces both.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code. A mistake is one sentence on stderr and 2; Ctrl-C is 130."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except ConfigurationError as error:
        print(f"gateway: {sentence(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        # The interpreter flushes stdout as it exits, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def sentence(text: str) -> str:
    """`text` with the full stop that it may lack."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="Litegate: one OpenAI-compatible endpoint in front of the LLM engines that you host.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"litegate {metadata.version('litegate')}"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (serve, plugins, models, doctor, new, key):
        module.add_to(commands)
    return parser
