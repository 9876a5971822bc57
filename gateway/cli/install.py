"""`gateway install` and `gateway uninstall`."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import util
from pathlib import Path

from gateway.base.errors import ConfigurationError
from gateway.base.packages import PACKAGES, is_installed
from gateway.commands.arguments import Commands
from gateway.config.tables import nearest
from gateway.plugins.loading import installed_plugins

_PREFIX = "litegate-"
_FOLDERS = ("plugins", "backends")
"""The folders of the repository that contain packages."""
_ROOT = Path(__file__).parents[2]
"""The root of the repository, if the gateway runs from it."""
_BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""A plain name: not a path, a URL or a requirement with a version."""


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    install = commands.add_parser(
        "install",
        help="install plugins into this environment",
        description="Install packages into the environment of this command, by pip or uv. NAME is a plugin of this project "
        "(redis, or litegate-redis; a gateway that runs from the repository takes it from there), or anything that pip takes: another package, a wheel, a folder, a URL.",
    )
    install.add_argument("names", nargs="+", metavar="NAME")
    install.add_argument(
        "-U", "--upgrade", action="store_true", help="upgrade what is installed already"
    )
    install.add_argument(
        "-e", "--editable", action="store_true", help="install folders as they are"
    )
    install.set_defaults(command=install_packages)
    uninstall = commands.add_parser(
        "uninstall",
        help="remove plugins from this environment",
        description="Remove packages of plugins from the environment of this command, by pip or uv.",
    )
    uninstall.add_argument("names", nargs="+", metavar="NAME")
    uninstall.add_argument("-y", "--yes", action="store_true", help="do not ask")
    uninstall.set_defaults(command=uninstall_packages)


def install_packages(arguments: argparse.Namespace) -> int:
    """Install packages. Returns the installer's exit code, or 1 if a package that was requested by its name has no
    plugin."""
    command = ["install", *(["--upgrade"] if arguments.upgrade else [])]
    for name in arguments.names:
        package = name if arguments.editable else _wanted_package(name)
        folder = _folder_of(package)
        if arguments.editable or folder is not None:
            command.append("--editable")
        command.append(package if folder is None else str(folder))
    before = _plugins()
    others = [] if arguments.editable else [each for each in arguments.names if _is_other(each)]
    present = {each for each in others if is_installed(each)}
    code = _run(command)
    if code == 0:
        new = sorted(set(_plugins_now()) - set(before))
        print(f"New plugins: {', '.join(new)}." if new else "No new plugin was installed.")
        packages = {_normalized(each) for each in before.values()}
        if not new and (bare := [each for each in others if _normalized(each) not in packages]):
            for name in bare:
                print(f"gateway: {_no_plugin(name, name in present)}", file=sys.stderr)
            return 1
    return code


def _folder_of(package: str) -> Path | None:
    """The folder of a package of this project in the repository that this gateway runs from; None if it runs from an installed
    package."""
    if package not in PACKAGES:
        return None
    for file in _ROOT.glob("*/*/pyproject.toml"):
        if file.parent.parent.name in _FOLDERS:
            project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
            if project.get("name") == package:
                return file.parent
    return None


def _is_other(name: str) -> bool:
    """Whether `name` is the name of a package that does not belong to this project."""
    return _BARE.fullmatch(name) is not None and _package(name) not in PACKAGES


def _normalized(package: str) -> str:
    """The normalized spelling of a package's name, as the Python packaging standards define it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _no_plugin(name: str, was_there: bool) -> str:
    if was_there:
        return f"the package {name} has no plugin of the gateway; it was installed before."
    remove = shlex.join(_installer(["uninstall", name]))
    return f"the package {name} was installed, but has no plugin of the gateway; `{remove}` removes it."


def uninstall_packages(arguments: argparse.Namespace) -> int:
    """Remove packages. Returns the installer's exit code. Raises `ConfigurationError` for one that has no plugin."""
    packages = [_installed_package(name) for name in arguments.names]
    if not arguments.yes:
        try:
            answer = input(f"Remove {', '.join(packages)}? [y/N] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            print("Nothing was removed.")
            return 1
    return _run(["uninstall", *packages], confirmed=True)


def _package(name: str) -> str:
    """Return what pip should install for `name`: the short name of a plugin of this project stands for its package."""
    if not _BARE.fullmatch(name):
        return name
    package = _PREFIX + name.removeprefix(_PREFIX).replace("_", "-").lower()
    return package if package in PACKAGES else name


def _wanted_package(name: str) -> str:
    """Like `_package`, but raises `ConfigurationError` for a name that looks like a misspelled plugin of this project:
    a package index may have an unrelated package of that name."""
    package = _package(name)
    if _BARE.fullmatch(name) and package not in PACKAGES:
        short = [each.removeprefix(_PREFIX) for each in PACKAGES]
        written = name.lower().replace("_", "-").removeprefix(_PREFIX)
        if near := get_close_matches(written, short, n=1, cutoff=0.8):
            raise ConfigurationError(
                f'there is no plugin {name!r}; did you mean "{near[0]}"? A package that is really called {name} is installed by '
                f"`pip install {name}`"
            )
    return package


def _installed_package(name: str) -> str:
    package = _package(name)
    installed = sorted(_plugins().values())
    if package == "litegate":
        raise ConfigurationError(
            "litegate is the gateway itself: `pip uninstall litegate` removes it"
        )
    if package not in installed:
        short = {each.removeprefix(_PREFIX): each for each in installed}
        near = nearest(name.removeprefix(_PREFIX), short)
        hint = f'did you mean "{near}"?' if near else f"installed: {', '.join(short) or 'none'}."
        raise ConfigurationError(f"no plugin of the package {package!r} is installed; {hint}")
    return package


def _plugins() -> dict[str, str]:
    """The installed plugins, with their packages."""
    return {each.name: each.distribution for each in installed_plugins()}


def _plugins_now() -> list[str]:
    """The names of the plugins that a new process finds."""
    code = "from gateway.plugins.loading import installed_plugins; print(*(p.name for p in installed_plugins()))"
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def _run(command: Sequence[str], *, confirmed: bool = False) -> int:
    """Run the installer. Returns its exit code."""
    runner = _installer(command, confirmed=confirmed)
    return subprocess.run(runner, check=False).returncode  # noqa: S603 - the user's own command line


def _installer(command: Sequence[str], *, confirmed: bool = False) -> list[str]:
    """The command line of pip in this environment, or of uv if pip is missing (`uv tool`, `uvx`, `uv venv`)."""
    if util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", *command, *(["--yes"] if confirmed else [])]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", command[0], "--python", sys.executable, *command[1:]]
    raise ConfigurationError(
        f"{sys.prefix} has neither pip nor uv: run `{sys.executable} -m ensurepip` first"
    )
