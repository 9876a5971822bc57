"""Imports run downwards: the floors of the core, and what plugins may import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = (
    ("cli", "__main__", "testing"),
    ("checks", "conform"),
    ("server",),
    ("app",),
    ("routes", "startup"),
    ("responses", "chat", "completions", "embeddings", "scoring"),
    ("loop",),
    ("assembly",),
    ("runtime",),
    ("tools",),
    ("plugins",),
    ("plugin_checks",),
    ("hookspecs", "metrics"),
    ("hub",),
    ("media",),
    ("sql",),
    (
        "documents",
        "engine_process",
        "engines",
        "files",
        "limit_table",
        "net",
        "packing",
        "stored_parts",
        "shared_values",
        "usage_table",
    ),
    ("forms", "process_pool", "reasoning_meter", "request_log", "uvicorn_internals"),
    ("request_stats", "task_context", "temporary_folders"),
    ("protocols", "config"),
    ("wire",),
    ("constraints", "deltas", "errors", "json_schema", "packages"),
)
"""From the top to the ground. A package imports from lower floors only; `sdk` is imported by plugins alone."""
FLOOR = {name: floor for floor, names in enumerate(reversed(FLOORS)) for name in names}
ALLOWED_BESIDE = {("__main__", "cli"), ("testing", "cli")}
MODULES = sorted((ROOT / "gateway").rglob("*.py"))
PLUGINS = sorted(
    file
    for parts in ("plugins/*/gateway_*", "backends/*/gateway_*", "examples/plugins/*/gateway_*")
    for folder in ROOT.glob(parts)
    for file in ([folder] if folder.is_file() else folder.rglob("*.py"))
)


def imports(file: Path) -> Iterator[str]:
    """The modules of the core that a file imports, those for type checking too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "gateway":
                yield from (f"gateway.{name.name}" for name in node.names)
            elif node.module.startswith("gateway."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("gateway."))


def package(module: str) -> str:
    return module.split(".")[1]


def own_package(file: Path) -> str:
    return file.relative_to(ROOT / "gateway").parts[0].removesuffix(".py")


def test_every_package_has_a_floor() -> None:
    found = {own_package(file) for file in MODULES} - {"__init__", "sdk"}
    assert found == set(FLOOR)


@pytest.mark.parametrize("name", sorted(FLOOR))
def test_a_package_imports_from_lower_floors_only(name: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in MODULES
        if own_package(file) == name
        for module in imports(file)
        if module != "gateway.hookimpl"
        if package(module) != name
        if (name, package(module)) not in ALLOWED_BESIDE
        if package(module) == "sdk" or FLOOR[package(module)] >= FLOOR[name]
    ]
    assert not wrong


def test_the_sdk_is_for_plugins_alone() -> None:
    users = [
        str(file.relative_to(ROOT))
        for file in MODULES
        if own_package(file) not in ("sdk", "testing", "cli")
        if any(module.startswith("gateway.sdk") for module in imports(file))
    ]
    assert not users


def test_plugins_import_the_sdk_only() -> None:
    """Their tests may import `gateway.testing` too. A running gateway never does."""
    assert len(PLUGINS) > 200
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in PLUGINS
        for module in imports(file)
        if package(module) != "sdk"
    ]
    assert not wrong


@pytest.mark.parametrize("name", sorted({own_package(file) for file in MODULES} - {"testing"}))
def test_the_running_gateway_does_not_import_the_kits(name: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in MODULES
        if own_package(file) == name
        for module in imports(file)
        if package(module) == "testing"
    ]
    assert not wrong
