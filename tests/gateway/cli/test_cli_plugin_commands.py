"""Commands of plugins: they are found, complete, listed, and refused with one sentence if something is wrong with them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import hookimpl
from gateway.base import packages
from gateway.base.errors import ConfigurationError
from gateway.cli import argument_parser, main, plugin_commands
from gateway.plugins.checks import CORE_COMMANDS
from gateway.plugins.hookspecs import MakeCommand, RegisterCommand, RunCommand
from gateway.plugins.loading import PluginSet, load_plugins


def make_greet(parser: argparse.ArgumentParser) -> RunCommand:
    parser.description = "Greet somebody."
    parser.add_argument("name")
    parser.add_argument("--loudly", action="store_true")
    return greet


def greet(arguments: argparse.Namespace) -> int:
    if arguments.name == "nobody":
        raise ConfigurationError("there is nobody to greet")
    hello = f"Hello, {arguments.name}."
    print(hello.upper() if arguments.loudly else hello)
    return {"Eve": 1}.get(arguments.name, 0)


def plugin(
    name: str, make: MakeCommand, summary: str = "say hello", plugin_name: str = ""
) -> object:
    """A plugin that registers one command."""

    class Plugin:
        @staticmethod
        @hookimpl
        def gateway_register_commands(register: RegisterCommand) -> None:
            register(name, make, summary=summary)

    Plugin.__name__ = plugin_name or f"gateway_{name}"
    return Plugin


Use = Callable[..., None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes these plugins, and the installed ones, those of the command line."""

    def use(*extra: object) -> None:
        def load(*_: Any, **__: Any) -> PluginSet:
            return load_plugins(extra=extra, strict=False)

        monkeypatch.setattr(plugin_commands, "load_plugins", load)

    return use


def test_the_names_of_the_gateway_s_own_commands_are_known() -> None:
    installed = load_plugins().names("command")
    assert {*argument_parser().commands, "help"} == {*CORE_COMMANDS, *installed}


def test_a_command_gets_its_arguments_and_gives_the_exit_code(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    use(plugin("greet", make_greet))
    assert main(["greet", "Ada", "--loudly"]) == 0
    assert main(["greet", "Eve"]) == 1
    assert capsys.readouterr().out == "HELLO, ADA.\nHello, Eve.\n"


def test_a_mistake_of_the_user_is_one_sentence_as_of_other_commands(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    use(plugin("greet", make_greet))
    assert main(["greet", "nobody"]) == 2
    assert main(["greet", "Ada", "--loud", "--quietly"]) == 2
    assert main(["greet"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gateway: there is nobody to greet.",
        "gateway: `gateway greet` has no option '--quietly'; `gateway greet --help` lists them.",
        "gateway: `gateway greet`: the following arguments are required: name; `gateway greet --help` says what it takes.",
    ]


@pytest.mark.parametrize("asked", [["--help"], ["help"], ["-h"]])
def test_help_lists_the_commands_of_plugins_without_making_them(
    use: Use, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    def make(parser: argparse.ArgumentParser) -> RunCommand:
        raise AssertionError("made")

    use(plugin("greet", make, summary="say hello"))
    with pytest.raises(SystemExit) as caught:
        main(asked)
    assert caught.value.code == 0
    assert "    greet       say hello\n" in capsys.readouterr().out


@pytest.mark.parametrize("asked", [["help", "greet"], ["greet", "--help"]])
def test_the_help_of_one_command_shows_what_it_takes(
    use: Use, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    use(plugin("greet", make_greet))
    with pytest.raises(SystemExit):
        main(asked)
    out = capsys.readouterr().out
    assert out.startswith("usage: gateway greet [-h] [--loudly] name\n\nGreet somebody.\n")


def test_the_completion_has_the_options_of_commands_of_plugins(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    use(plugin("greet", make_greet))
    assert main(["completion", "bash"]) == 0
    out = capsys.readouterr().out
    assert "greet" in out
    assert "--loudly" in out


def test_a_misspelt_command_of_a_plugin_is_found(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    use(plugin("greet", make_greet))
    assert main(["gret", "Ada"]) == 2
    assert 'did you mean "gateway greet"?' in capsys.readouterr().err


def broken_import(parser: argparse.ArgumentParser) -> RunCommand:
    import no_such_module  # noqa: F401

    raise AssertionError


def broken_run(parser: argparse.ArgumentParser) -> RunCommand:
    def run(arguments: argparse.Namespace) -> int:
        return int({}["answer"])

    return run


def broken_file(parser: argparse.ArgumentParser) -> RunCommand:
    def run(arguments: argparse.Namespace) -> int:
        return len(Path("no such file").read_bytes())

    return run


def no_function(parser: argparse.ArgumentParser) -> Any:
    return None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (broken_import, "cannot be used: ModuleNotFoundError: No module named 'no_such_module'"),
        (broken_run, "failed: KeyError: 'answer'"),
        (
            broken_file,
            "failed: FileNotFoundError: [Errno 2] No such file or directory: 'no such file'",
        ),
        (no_function, "cannot be used: its function returned None"),
    ],
)
def test_a_broken_command_is_one_sentence_that_names_its_plugin(
    use: Use, capsys: pytest.CaptureFixture[str], make: MakeCommand, sentence: str
) -> None:
    use(plugin("greet", make))
    assert main(["greet"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        f"gateway: the command 'greet' of the plugin 'greet' (this program) {sentence}"
    )
    assert err.count("\n") == 1


def test_a_plugin_that_does_not_load_is_named_where_its_command_is_missing(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        @staticmethod
        @hookimpl
        def gateway_register_commands(register: RegisterCommand) -> None:
            raise RuntimeError("no")

    Broken.__name__ = "gateway_greet"
    use(Broken)
    assert main(["greet"]) == 2
    assert main(["frob"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gateway: the plugin 'greet' (this program) is installed but not loaded: registering failed: RuntimeError: no.",
        "gateway: there is no command 'frob'; `gateway help` lists the commands. Not loaded: greet (see `gateway plugins`).",
    ]


@pytest.mark.parametrize("name", sorted(CORE_COMMANDS))
def test_the_name_of_a_command_of_the_gateway_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_plugins(extra=[plugin(name, make_greet, plugin_name="gateway_mine")], installed=False)
    assert str(raised.value) == (
        f"the plugin 'mine' (this program): it registers the command '{name}', which is one of the gateway itself."
    )


def test_a_name_of_another_plugin_is_refused() -> None:
    plugins = [plugin("greet", make_greet, plugin_name=name) for name in ("first", "second")]
    with pytest.raises(ConfigurationError) as raised:
        load_plugins(extra=plugins, installed=False)
    assert "it offers a command named 'greet', and so does the plugin 'first'" in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"summary": ""}, "the command 'greet' has no summary, which `gateway --help` shows"),
        ({"aliases": ("hi",)}, "the command 'greet' can have neither a config nor aliases"),
        ({"make": None}, "what it registers as the command 'greet' cannot be called"),
    ],
)
def test_a_wrong_registration_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    class Plugin:
        @staticmethod
        @hookimpl
        def gateway_register_commands(register: Any) -> None:
            register("greet", **{"make": make_greet, "summary": "say hello", **wrong})

    with pytest.raises(ConfigurationError) as raised:
        load_plugins(extra=[Plugin], installed=False)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "command", sorted(name for kind, name in packages._OFFERS if kind == "command")
)
def test_a_command_whose_package_is_missing_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(packages, "is_installed", lambda package: False)
    monkeypatch.setattr(plugin_commands, "installed_plugins", list)
    monkeypatch.setattr(plugin_commands, "load_plugins", lambda **_: load_plugins(installed=False))
    assert main([command, "--anything"]) == 2
    assert capsys.readouterr().err == (
        f"gateway: the command '{command}' is not installed; `pip install litegate-{command}` installs it, "
        "and `pip install 'litegate[local]'` all that one machine needs.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["reload", "--help"], "[]"),
        (["help", "serve"], "[]"),
        (["--version"], "[]"),
        (["doctor", "--help"], "['gateway_doctor']"),
    ],
)
def test_only_the_plugin_that_is_needed_is_imported(arguments: list[str], loaded: str) -> None:
    program = (
        "import sys; from gateway.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "print(sorted({each.partition('.')[0] for each in sys.modules if each.startswith('gateway_')}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == loaded


def test_loading_plugins_imports_no_command() -> None:
    program = (
        "import sys; from gateway.plugins.loading import load_plugins; load_plugins()\n"
        "print(sorted(each for each in sys.modules if each.endswith('.command')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
