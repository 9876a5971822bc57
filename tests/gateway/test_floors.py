"""Imports run downwards: the floors of the core, what plugins may import, and no circles between files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = (
    ("cli", "__main__"),
    ("process",),
    ("http",),
    ("startup",),
    ("answers",),
    ("generation",),
    ("items",),
    ("services",),
    ("commands",),
    ("models",),
    ("access",),
    ("tools",),
    ("media",),
    ("engines",),
    ("storage",),
    ("observe",),
    ("plugins",),
    ("config",),
    ("wire",),
    ("base",),
)
"""From the top to the ground. A package imports from lower floors only; `sdk` is imported by plugins alone."""
FLOOR = {name: floor for floor, names in enumerate(reversed(FLOORS)) for name in names}
ALLOWED_BESIDE = {("__main__", "cli")}
MODULES = sorted((ROOT / "gateway").rglob("*.py"))
DOCTOR_IMPORTS = frozenset(
    f"gateway.{name}"
    for name in (
        "access.access", "access.stored_keys", "answers.chat.tools", "commands.arguments", "config", "config.tables",
        "models.hub.fetching", "plugins.loading", "process.listening", "process.logs", "startup.engine_choice",
        "startup.model_opening", "startup.model_plan", "startup.selection", "startup.settings", "tools.available",
    )
)  # fmt: skip
"""What `gateway_doctor` imports from the core beside the SDK: `gateway doctor` is to find what the start of a server would refuse, so it
calls what the start calls."""
PLUGINS = sorted(
    file
    for parts in ("plugins/*/gateway_*", "backends/*/gateway_*", "examples/plugins/*/gateway_*")
    for folder in ROOT.glob(parts)
    if folder.name != "gateway_testing"
    for file in ([folder] if folder.is_file() else folder.rglob("*.py"))
)
KITS = sorted((ROOT / "plugins" / "testing").rglob("*.py"))
"""The contract kits and the servers for tests stand above all floors."""


@cache
def import_statements(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those on the file's top level, in its functions, and for type checking."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def imports(file: Path) -> Iterator[str]:
    """The names of the core that a file imports, as `gateway.module.name`; those for type checking too."""
    yield from of_the_core(imported_names(file, module_name(file)))


def of_the_core(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name.split(".")[0] == "gateway")


def package(module: str) -> str:
    """The package or module below `gateway`; empty for `gateway` itself."""
    return module.partition(".")[2].partition(".")[0]


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


def own_package(file: Path) -> str:
    return file.relative_to(ROOT / "gateway").parts[0].removesuffix(".py")


def shown_floors() -> tuple[tuple[str, ...], ...]:
    """The packages of each line of the diagram in `docs/architecture.md`."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.search(r"## Floors\n.*?```text\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return tuple(tuple(re.split(r"\s{2,}", line)[0].split(" · ")) for line in found[1].splitlines())


def test_the_diagram_shows_the_floors_that_are_asserted() -> None:
    assert [sorted(floor) for floor in shown_floors()] == [sorted(floor) for floor in FLOORS]


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


@pytest.mark.parametrize(
    ("planted", "module", "found"),
    [
        ("import gateway", "gateway_x.first", "gateway"),
        ("import gateway.http.app", "gateway_x.first", "gateway.http.app"),
        ("from gateway import services", "gateway_x.first", "gateway.services"),
        (
            "def later():\n    from gateway.http.app import x",
            "gateway_x.first",
            "gateway.http.app.x",
        ),
        ("from ..services import x", "gateway.generation.first", "gateway.services.x"),
        ("from .. import services", "gateway.generation.first", "gateway.services"),
    ],
)
def test_an_import_of_the_core_is_found_however_it_is_written(
    planted: str, module: str, found: str, tmp_path: Path
) -> None:
    file = tmp_path / "first.py"
    file.write_text(f"{planted}\n", encoding="utf-8")
    assert list(of_the_core(imported_names(file, module))) == [found]


def test_the_package_itself_imports_the_hooks_only() -> None:
    assert set(imports(ROOT / "gateway" / "__init__.py")) == {"gateway.plugins.hookspecs.hookimpl"}


def test_the_sdk_has_no_code_of_its_own() -> None:
    for file in MODULES:
        if own_package(file) == "sdk":
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                match node:
                    case ast.ImportFrom(level=0) | ast.Expr(value=ast.Constant()):
                        pass
                    case ast.Assign(targets=[ast.Name(id="__all__")]):
                        pass
                    case _:
                        pytest.fail(f"{file.relative_to(ROOT)} line {node.lineno}")


def test_what_the_sdk_imports_is_below_the_running_of_requests() -> None:
    """A plugin that imports the SDK imports no server, application or API."""
    assert not [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in MODULES
        if own_package(file) == "sdk"
        for module in imports(file)
        if package(module) != "sdk" and FLOOR[package(module)] >= FLOOR["generation"]
    ]


def test_the_sdk_is_for_plugins_alone() -> None:
    users = [
        str(file.relative_to(ROOT))
        for file in MODULES
        if own_package(file) not in ("sdk", "cli")
        if any(module.startswith("gateway.sdk") for module in imports(file))
    ]
    assert not users


def test_plugins_import_the_sdk_only() -> None:
    """Their tests may import `gateway_testing` too. A running gateway never does."""
    assert len(PLUGINS) > 200
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in PLUGINS
        for module in imports(file)
        if package(module) != "sdk"
        if not (
            module_name(file).startswith("gateway_doctor.")
            and module.rpartition(".")[0] in DOCTOR_IMPORTS
        )
    ]
    assert not wrong


def test_the_doctor_imports_all_that_it_may() -> None:
    found = {
        module.rpartition(".")[0]
        for file in PLUGINS
        if module_name(file).startswith("gateway_doctor.")
        for module in imports(file)
        if package(module) != "sdk"
    }
    assert found == DOCTOR_IMPORTS


def test_the_running_gateway_does_not_import_the_kits() -> None:
    assert not [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (*MODULES, *PLUGINS)
        for name in imported_names(file, module_name(file))
        if name.split(".")[0] == "gateway_testing"
    ]


CORE_MODULES = frozenset(map(module_name, MODULES))


# Modules that are named in strings: programs, functions of helper processes, what is loaded later.

NAMED_ABOVE = {("gateway.engines.process.starting", "gateway.process.engine_main")}
"""The program of an engine's process, which a server of any floor may start."""


def named_modules(file: Path) -> Iterator[str]:
    """The modules of the core, at least two levels deep, that strings of a file consist of; names of loggers are none."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    loggers = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "logging.getLogger"
        and node.args
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in loggers
        ):
            module = node.value.partition(":")[0]
            if module.count(".") > 1 and module in CORE_MODULES:
                yield module


def test_a_module_that_is_named_in_a_string_is_on_no_higher_floor() -> None:
    found = [
        (module_name(file), named)
        for file in MODULES
        if own_package(file) != "sdk"
        for named in named_modules(file)
    ]
    assert set(found) >= NAMED_ABOVE
    assert {
        (module, named) for module, named in found if FLOOR[package(named)] > FLOOR[package(module)]
    } == NAMED_ABOVE


def test_plugins_name_modules_of_the_sdk_only() -> None:
    assert not [
        f"{file.relative_to(ROOT)} names {module}"
        for file in PLUGINS
        for module in named_modules(file)
        if package(module) != "sdk"
    ]


# No circles between files.

SCRIPTS = sorted(ROOT.glob("plugins/*/gateway_*/**/*.js"))
_SCRIPT_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']+)["']""")


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
    files = {module_name(file): file for file in (*MODULES, *PLUGINS, *KITS)}
    assert len(files) == len(MODULES) + len(PLUGINS) + len(KITS)
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
