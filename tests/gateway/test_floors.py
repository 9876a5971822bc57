"""Imports run downwards: the floors of the core, what plugins may import, and no circles between files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
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
        "event_batches",
        "files",
        "limit_table",
        "net",
        "packing",
        "stored_parts",
        "shared_values",
        "store_writes",
        "usage_table",
    ),
    ("forms", "process_pool", "reasoning_meter", "request_log", "uvicorn_internals"),
    (
        "caches",
        "light_histograms",
        "request_stats",
        "shared_timers",
        "stall_watch",
        "task_context",
        "temporary_files",
        "temporary_folders",
    ),
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


@cache
def import_statements(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those on the file's top level, in its functions, and for type checking."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def imports(file: Path) -> Iterator[str]:
    """The modules of the core that a file imports, those for type checking too."""
    for node in import_statements(file):
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


# No circles between files.

SCRIPTS = sorted(ROOT.glob("plugins/*/gateway_*/**/*.js"))
_SCRIPT_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']+)["']""")


def module_name(file: Path) -> str:
    """The name under which a file of the core or of a plugin is imported."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    start = next(at for at, part in enumerate(parts) if part.startswith("gateway"))
    return ".".join(parts[start:]).removesuffix(".__init__")


def imported_names(file: Path, module: str) -> Iterator[str]:
    """What a file imports, as `module` or `module.name`: on its top level, in functions, and for type checking."""
    parents = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in import_statements(file):
        if isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{each.name}" for each in node.names)
        else:
            yield from (each.name for each in node.names)


def import_graph(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """By module, those of `files` that it imports."""
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        # A name that is no module is taken from the module before the last dot.
        found = {
            name if name in files else name.rpartition(".")[0]
            for name in imported_names(file, module)
        }
        graph[module] = (found & files.keys()) - {module}
    return graph


def circle_of(graph: Mapping[str, set[str]]) -> str:
    """Files that import each other, as `a -> b -> a`; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The error names each file after one that it imports.
        return " -> ".join(reversed(error.args[1]))
    return ""


def test_no_file_imports_itself_through_others() -> None:
    """Neither when it is imported, nor later in a function, nor for its types."""
    files = {module_name(file): file for file in (*MODULES, *PLUGINS)}
    assert len(files) == len(MODULES) + len(PLUGINS)
    graph = import_graph(files)
    assert sum(map(len, graph.values())) > 3 * len(files), "imports are found"
    assert not circle_of(graph)


def test_no_script_imports_itself_through_others() -> None:
    graph = {
        str(file.relative_to(ROOT)): {
            str((file.parent / name).relative_to(ROOT))
            for name in _SCRIPT_IMPORT.findall(file.read_text(encoding="utf-8"))
        }
        for file in SCRIPTS
    }
    assert any(graph.values()), "imports are found"
    assert not circle_of(graph)


@pytest.mark.parametrize(
    "planted",
    [
        "from gateway_x.first import A",
        "import gateway_x.first",
        "from gateway_x import first",
        "from . import first",
        "from .first import A",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gateway_x.first import A",
        "def later():\n    from gateway_x.first import A",
    ],
)
def test_a_circle_is_found_however_it_is_imported(planted: str, tmp_path: Path) -> None:
    files = {f"gateway_x.{name}": tmp_path / f"{name}.py" for name in ("first", "second", "third")}
    for file, text in zip(
        files.values(), ("from gateway_x.second import B", planted, planted), strict=True
    ):
        file.write_text(f"{text}\n", encoding="utf-8")
    graph = import_graph(files)
    assert set(circle_of(graph).split(" -> ")) == {"gateway_x.first", "gateway_x.second"}
    del graph["gateway_x.first"]
    assert not circle_of(graph)
