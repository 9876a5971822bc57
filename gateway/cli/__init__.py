"""The command `gateway`."""

from __future__ import annotations

import argparse
import errno
import os
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from typing import Any, NoReturn

from gateway.base.errors import ConfigurationError
from gateway.cli import (
    batch,
    cache,
    completion,
    config,
    health,
    install,
    key,
    models,
    new,
    plugin_commands,
    plugins,
    reload,
    serve,
    usage,
)
from gateway.commands.terminal_text import visible
from gateway.config.tables import nearest
from gateway.plugins.checks import CORE_COMMANDS
from gateway.plugins.loading import PluginSet

EPILOG = """\
Settings come from the file that --config or GATEWAY_CONFIG names, else from ./gateway.toml, else from built-in defaults
(the embedded engine with its tiny model). Variables such as GATEWAY_SERVER__PORT=8001 replace the file's settings, and
the command line replaces both.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: for an error, one sentence is printed to stderr and the code is 2; Ctrl-C
    gives 130."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = _parser_for(given)
        arguments = parser.parse_args(parser.spelled(given))
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except ConfigurationError as error:
        print(f"gateway: {sentence(visible(str(error)))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (`head`, for example) has closed the pipe
        _leave_stdout()
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _leave_stdout()
        print(f"gateway: {sentence(str(error))}", file=sys.stderr)
        return 1


def _leave_stdout() -> None:
    """Write no more to stdout: the interpreter's final flush would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        lines = [f"litegate {metadata.version('litegate')} (Python {platform.python_version()})"]
        lines += (f"  {line}" for line in plugins.versions())
        print("\n".join(lines))
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that prints its help if the command or action is missing, and reports any other mistake in one
    sentence."""

    commands: Collection[str] = ()
    plugins: PluginSet | None = None
    """The plugins whose commands are among `commands`. None: plugins were not loaded, because the command line needs
    none."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            raise ConfigurationError(self._unknown(unknown[0].partition("=")[0]))
        return found, unknown

    def spelled(self, given: list[str]) -> list[str]:
        """Return the command line, with `gateway help COMMAND` changed to `gateway COMMAND --help`. Raises
        `ConfigurationError` if it begins with neither a command nor an option."""
        if given[:1] == ["help"]:
            given = [*given[1:2], "--help"]
        options = list(self._option_string_actions)
        word = given[0] if given else ""
        if word.startswith("-"):
            name = word.partition("=")[0]
            if not any(each.startswith(name) for each in options):
                raise ConfigurationError(self._unknown(name))
        elif word and word not in self.commands:
            raise ConfigurationError(self._no_command(word, options))
        return given

    def _no_command(self, word: str, options: Collection[str]) -> str:
        known, broken = [*self.commands, "help"], ""
        if self.plugins is not None:
            plugin_commands.check_known(word, self.plugins)
            known += plugin_commands.command_names(self.plugins)
            if failures := ", ".join(each.plugin.name for each in self.plugins.failures):
                broken = f". Not loaded: {failures} (see `gateway plugins`)"
        near = f"--{word}" if f"--{word}" in options else nearest(word, known)
        hint = f'did you mean "gateway {near}"? ' if near else ""
        return f"there is no command {word!r}; {hint}`gateway help` lists the commands{broken}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(each) for each in action.choices or ()]
        near = nearest(str(value), known)
        if known and value not in known and near:
            name = action.metavar or "/".join(action.option_strings) or action.dest
            raise ConfigurationError(
                f'`{self.prog}`: {name} cannot be {value!r}; did you mean "{near}"? It is one of: {", ".join(known)}'
            )
        super()._check_value(action, value)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"`{self.prog}` takes no argument {word!r}; `{self.prog} --help` lists what it takes"
        near = nearest(word, self._option_string_actions)
        hint = f'did you mean "{near}"? ' if near else ""
        return f"`{self.prog}` has no option {word!r}; {hint}`{self.prog} --help` lists them"

    def error(self, message: str) -> NoReturn:
        if message.endswith((": COMMAND", ": ACTION")):
            self.print_help(sys.stderr)
            self.exit(2)
        raise ConfigurationError(
            f"`{self.prog}`: {message}; `{self.prog} --help` says what it takes"
        )


def sentence(text: str) -> str:
    """`text` with a final full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _parser_for(given: Sequence[str]) -> _Parser:
    """Return the parser for a command line. It has the commands of plugins only if it may need them: for a command of
    the gateway, no plugin is loaded, and for a list of the commands, their arguments are omitted."""
    words = given[1:] if given[:1] == ["help"] else given
    word = words[0] if words else "--help"
    if word in CORE_COMMANDS or ("--version".startswith(word) and word > "--"):
        return _parser(None, lambda _: False)
    if word.startswith("-"):
        return _parser(plugin_commands.plugins_with(None), lambda _: False)
    return _parser(plugin_commands.plugins_with(word), lambda name: name == word)


def argument_parser() -> _Parser:
    """The parser of the whole command line, with the commands of all installed plugins."""
    return _parser(plugin_commands.plugins_with(None), lambda _: True)


def _parser(plugins_: PluginSet | None, complete: Callable[[str], bool]) -> _Parser:
    parser = _Parser(
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
    plain: argparse.ArgumentParser = parser
    commands = plain.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (serve, reload, health, batch, models, cache, config, plugins, install, new, key, usage):  # fmt: skip
        module.add_to(commands)
    completion.add_to(commands, argument_parser)
    if plugins_ is not None:
        plugin_commands.add_commands(commands, plugins_, complete)
    parser.plugins = plugins_
    parser.commands = commands.choices
    return parser
