"""`gateway new`: what it writes works as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.cli.new import SKELETONS, skeleton

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKELETONS)
def test_the_tests_of_a_new_plugin_pass(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", kind, "my-own"]) == 0
    folder = Path("gateway_my_own")
    assert f"pytest {folder}" in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder.resolve())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_the_tests_of_new_plugins_pass_where_all_are_installed(tmp_path: Path) -> None:
    """One of each kind, installed as `pip install -e` does, in one run of pytest."""
    folders = [write_installed(tmp_path, kind, f"my_{kind}") for kind in SKELETONS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def write_installed(folder: Path, kind: str, name: str) -> str:
    """Write a plugin and its metadata, so that a process with the result on its path has it installed."""
    main(["new", kind, name])
    plugin = folder / f"gateway_{name}"
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    metadata = plugin / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    [(entry, module)] = project["entry-points"]["gateway"].items()
    (metadata / "entry_points.txt").write_text(f"[gateway]\n{entry} = {module}\n")
    return str(plugin)


@pytest.mark.parametrize("kind", SKELETONS)
def test_a_new_plugin_is_a_distribution_by_the_rule(kind: str) -> None:
    files = dict(skeleton(kind, "my_own"))
    project = tomllib.loads(files[Path("pyproject.toml")])["project"]
    assert project["name"] == "litegate-my-own"
    assert project["entry-points"]["gateway"] == {"my_own": "gateway_my_own"}
    assert "litegate>=0.1,<0.2" in project["dependencies"]
    assert "my_own" in files[Path("README.md")]


@pytest.mark.parametrize("kind", SKELETONS)
def test_a_new_plugin_is_clean(kind: str) -> None:
    main(["new", kind, "my_own"])
    checked("ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), ".")


@pytest.mark.slow
def test_the_types_of_new_plugins_are_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in SKELETONS:
        main(["new", kind, f"my_{kind}"])
    folders = [f"gateway_my_{kind}/gateway_my_{kind}" for kind in SKELETONS]
    tests = [f"gateway_my_{kind}/tests/test_my_{kind}.py" for kind in SKELETONS]
    # What is installed editable is where mypy does not look.
    paths = [ROOT, ROOT / "plugins/memory", *(f"gateway_my_{kind}" for kind in SKELETONS)]
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(map(str, paths)))
    checked("mypy", "--strict", "--follow-imports=silent", *folders, *tests)


def checked(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Big", "1st", "with space", "class", "", "a/b", "ünder"])
def test_a_name_that_cannot_be_a_module_is_refused(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["new", "tool", name]) == 2
    assert "is not a valid name for a plugin" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "engine", "scripted"]) == 2
    assert "litegate-scripted offers the engine 'scripted' already" in capsys.readouterr().err


def test_the_name_of_a_command_of_the_gateway_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["new", "command", "serve"]) == 2
    assert "the gateway has the command 'serve' already" in capsys.readouterr().err


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "tool", "mine"]) == 0
    module = Path("gateway_mine/gateway_mine/__init__.py")
    module.write_text("mine")
    assert main(["new", "tool", "mine"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert module.read_text() == "mine"
