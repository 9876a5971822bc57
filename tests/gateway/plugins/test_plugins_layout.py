"""The rules by which core and plugins live in one repository."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLUGINS = sorted(
    path.parent
    for path in ROOT.glob("*/*/pyproject.toml")
    if path.parts[-3] in {"plugins", "backends"}
)
WITHOUT_PLUGIN = {"sql", "testing"}
"""Folders of packages that register no plugin."""
OTHER_MODULES = {"chat": "gateway_terminal_chat"}
"""Modules that are not named after their folders: `gateway_chat` would look like `gateway.answers.chat`, the Chat Completions."""
CORE = sorted((ROOT / "gateway").rglob("*.py"))


def module_of(folder: Path) -> str:
    return OTHER_MODULES.get(folder.name, f"gateway_{folder.name}")


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_the_core_imports_no_plugin() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in CORE
        for name in imported(file)
        if name.startswith(("gateway_", "plugins", "backends"))
    }
    assert len(CORE) > 20
    assert not found


def test_only_the_loader_reads_entry_points() -> None:
    readers = {file.name for file in CORE if "entry_points(" in file.read_text(encoding="utf-8")}
    assert readers == {"loading.py"}


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_is_named_by_the_rule(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == f"litegate-{folder.name.replace('_', '-')}"
    registered = {} if folder.name in WITHOUT_PLUGIN else {folder.name: module_of(folder)}
    assert project.get("entry-points", {}).get("gateway", {}) == registered
    core = re.compile(r"litegate(\[[\w,]+\])?>=.*<")
    assert any(map(core.match, project["dependencies"]))


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_declares_the_plugins_that_it_imports_and_no_others(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    declared = {each for group in (project["dependencies"], *extras) for each in group}
    found = {
        name.partition(".")[0]
        for file in (folder / module_of(folder)).rglob("*.py")
        for name in imported(file)
        if name.startswith("gateway_")
    } - {module_of(folder)}
    assert {name.replace("_", "-").replace("gateway-", "litegate-") for name in found} == {
        each.partition(">=")[0] for each in declared if each.startswith("litegate-")
    }


@pytest.mark.parametrize("folder", [ROOT, *PLUGINS], ids=lambda folder: folder.name)
def test_every_wheel_carries_the_license(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def named_in(requirements: str) -> set[str]:
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    return {line[3:].partition("[")[0] for line in lines if line.startswith("-e ")}


def test_every_plugin_is_in_requirements_txt() -> None:
    """Those that are optional, or for tests, are in requirements-dev.txt."""
    optional = named_in("requirements-dev.txt")
    assert optional == {"plugins/otel", "plugins/testing"}
    every = {".", *(str(folder.relative_to(ROOT)) for folder in PLUGINS)}
    assert named_in("requirements.txt") == every - optional


def test_listing_plugins_imports_nothing_heavy() -> None:
    heavy = {"torch", "vllm", "xllamacpp", "transformers", "litestar", "numpy"}
    code = (
        "import sys; from gateway.plugins.loading import load_plugins; load_plugins(); "
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
