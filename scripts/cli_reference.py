#!/usr/bin/env python3
"""Writes docs/cli.md: the commands and their options, from the parser of the command line. With `--check`, fails if the page
is out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.base.packages import package_with
from gateway.cli import argument_parser

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Commands

All commands of `gateway`. `gateway COMMAND --help` shows the same. The exit code is 0; 1 if what was asked for failed; 2 for a mistake in the
command or the configuration, with one sentence on standard error; and 130 after Ctrl-C. Colours are left out if the output is not a
terminal or `NO_COLOR` is set. `gateway completion` prints the completion for a shell.

Written by `scripts/cli_reference.py` from the source; do not edit it.
"""


def page() -> str:
    parser = argument_parser()
    return "\n".join([HEAD, *_settings(parser), *_commands(parser, "gateway", 2)]).rstrip() + "\n"


def _commands(parser: argparse.ArgumentParser, name: str, level: int) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, inner in action.choices.items():
                yield f"{'#' * level} {name} {command}\n"
                yield _sentences(inner.description or "") + _package_of(command) + "\n"
                if inner.epilog:
                    yield f"```text\n{inner.epilog.strip()}\n```\n"
                yield from _settings(inner)
                yield from _commands(inner, f"{name} {command}", level + 1)


def _package_of(command: str) -> str:
    """A sentence about the package that adds a command; empty for one of the gateway itself."""
    package = package_with("command", command)
    return f" Of the package `{package}`." if package else ""


def _settings(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [row for action in parser._actions if (row := _row(parser, action))]
    if rows:
        yield "| argument | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str | None:
    if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
        return None
    if action.help == argparse.SUPPRESS:
        return None
    value = action.metavar if isinstance(action.metavar, str) else None
    if action.nargs == 0:
        value = None
    elif action.choices is not None:
        value = "\\|".join(map(str, action.choices))
    elif value is None:
        value = action.dest.upper()
    names = [f"{option} {value}" if value else option for option in action.option_strings]
    shown = ", ".join(f"`{name}`" for name in names) or f"`{value}`"
    meaning = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return f"| {shown} | {_sentences(meaning)} |"


def _sentences(text: str) -> str:
    text = " ".join(text.split()).replace("see below", "see above")
    text = text[:1].upper() + text[1:]
    return text.replace("|", "\\|") + (
        "" if not text or text.endswith((".", "!", "?", ":")) else "."
    )


def main() -> int:
    wanted = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != wanted:
            print("docs/cli.md is out of date: run scripts/cli_reference.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
