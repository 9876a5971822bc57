"""`gateway new`."""

from __future__ import annotations

import argparse
import keyword
import re
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from string import Template

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands
from gateway.plugins.checks import CORE_COMMANDS, Kind
from gateway.plugins.loading import KINDS, load_plugins

SKELETONS: tuple[Kind, ...] = KINDS

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "new",
        help="write the skeleton of a plugin",
        description="Write a small plugin that works, with tests that pass, into the folder ./gateway_NAME.",
    )
    parser.add_argument("kind", choices=SKELETONS, help="what the plugin offers")
    parser.add_argument(
        "name",
        metavar="NAME",
        help="its name, in gateway.toml for instance: small letters, digits and _",
    )
    parser.set_defaults(command=write_skeleton)


def write_skeleton(arguments: argparse.Namespace) -> int:
    """Write the files and print the next steps. Raises `ConfigurationError` instead of overwriting anything."""
    kind, name = arguments.kind, arguments.name.replace("-", "_")
    if not _NAME.match(name) or keyword.iskeyword(name):
        raise ConfigurationError(
            f"{arguments.name!r} is not a valid name for a plugin: small letters, digits and '_' make one, a letter first."
        )
    if kind == "command" and name in CORE_COMMANDS:
        raise ConfigurationError(
            f"the gateway has the command {name!r} already; choose another name."
        )
    for offer in load_plugins(strict=False).offers(kind):
        if offer.name == name:
            raise ConfigurationError(
                f"{offer.distribution} offers the {kind} {name!r} already; choose another name."
            )
    folder = Path(f"gateway_{name}")
    try:
        for path, text in skeleton(kind, name):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename} exists already; choose another name, or remove it first."
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or folder} cannot be written: {error.strerror}."
        ) from error
    print(f"Wrote the {kind} {name} to {folder}. Next:\n")
    print(f"    pip install -e './{folder}[test]'\n    pytest {folder}\n    gateway plugins")
    return 0


def skeleton(kind: str, name: str) -> Iterator[tuple[Path, str]]:
    """The files of a new plugin, with their paths in its folder."""
    version = metadata.version("litegate").split(".")
    bounds = f">={'.'.join(version[:2])},<{version[0]}.{int(version[1]) + 1}"
    needed = [
        f"litegate{bounds}",
        "msgspec>=0.22",
        *(f"{each}{bounds}" for each in _NEEDS.get(kind, ())),
    ]
    tested = [f"{each}{bounds}" for each in _TESTS_NEED.get(kind, ())]
    needed_by_tests = [f"litegate[testing]{bounds}", *tested]
    words = {
        "name": name,
        "kind": kind,
        "title": "".join(word.capitalize() for word in name.split("_")),
        "distribution": f"litegate-{name.replace('_', '-')}",
        "dependencies": ", ".join(f'"{each}"' for each in needed),
        "test_dependencies": ", ".join(f'"{each}"' for each in needed_by_tests),
        "how": "run it" if kind == "command" else "choose it in `gateway.toml`",
        "language": "bash" if kind == "command" else "toml",
        "usage": _USAGE[kind].substitute(name=name),
    }
    files = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"gateway_{name}/__init__.py": f"{kind}.py",
        f"tests/test_{name}.py": f"{kind}_test.py",
    }
    folder = resources.files("gateway.cli") / "templates"
    for target, source in files.items():
        template = (folder / f"{source}.tmpl").read_text(encoding="utf-8")
        yield Path(target), Template(template).substitute(words)
    yield Path(f"gateway_{name}/py.typed"), ""


_NEEDS = {"store": ("litegate-memory",)}
"""Packages of this repository that a new plugin needs."""
_TESTS_NEED = {"renderer": ("litegate-scripted",), "api": ("litegate-scripted", "litegate-chat-template", "litegate-parsers", "litegate-memory")}  # fmt: skip
"""Packages of this repository that the tests of a new plugin need."""
_USAGE = {
    "tool": Template("[tools.${name}]"),
    "engine": Template('[models.my-model]\nengine = "${name}"'),
    "renderer": Template('[models.my-model]\npath = "model.gguf"\nrenderer = "${name}"'),
    "store": Template('[server]\nstore = "${name}"\n\n[stores.${name}]\njournal = "responses.log"'),
    "api": Template("[apis.${name}]\nmax_tokens = 500"),
    "policy": Template('[policies.${name}]\nword = "secret"'),
    "router": Template('[routers.${name}]\nmodels = ["one", "other"]'),
    "authenticator": Template('[authenticators.${name}]\nsecret = "a long and random text"'),
    "resource": Template("[resources.${name}]\nmax_notes = 50\n\n[tools.${name}]"),
    "command": Template("gateway ${name} Ada"),
    "parser": Template('[models.my-model]\npath = "model.gguf"\nparser = "${name}"'),
}
