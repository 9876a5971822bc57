"""`gateway install`, `gateway uninstall`, and which plugins are listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.base.packages import PACKAGES
from gateway.cli import install, main


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The command lines of installers that would have run."""
    ran: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(install, "_ROOT", tmp_path)
    monkeypatch.setattr(install, "_plugins_now", lambda: ["memory", "new"])
    monkeypatch.setattr(install, "_plugins", lambda: {"memory": "litegate-memory", "own": "my-own"})
    return ran


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (["redis"], ["litegate-redis"]),
        (["litegate-redis"], ["litegate-redis"]),
        (["chat_template"], ["litegate-chat-template"]),
        (["File-Search"], ["litegate-file-search"]),
        (["requests"], ["requests"]),
        (["./folder", "a==1.0", "w.whl"], ["./folder", "a==1.0", "w.whl"]),
        (["-U", "redis"], ["--upgrade", "litegate-redis"]),
        (["-e", "./one", "./two"], ["--editable", "./one", "--editable", "./two"]),
    ],
)
def test_a_short_name_stands_for_the_package(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    names: list[str],
    asked: list[str],
) -> None:
    assert main(["install", *names]) == 0
    assert commands == [[sys.executable, "-m", "pip", "install", *asked]]
    assert capsys.readouterr().out == "New plugins: new.\n"


def test_a_gateway_in_its_repository_installs_its_own_plugins_from_there(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(install.__file__).parents[2]
    monkeypatch.setattr(install, "_ROOT", root)
    assert main(["install", "otel", "litegate-vllm", "requests", "-U"]) == 0
    asked = ["--editable", f"{root}/plugins/otel", "--editable", f"{root}/backends/vllm", "requests"]  # fmt: skip
    assert commands == [[sys.executable, "-m", "pip", "install", "--upgrade", *asked]]
    for package in PACKAGES:
        assert main(["install", package]) == 0
        assert commands[-1][-2] == "--editable", package


@pytest.mark.parametrize(
    ("name", "near"), [("vlm", "vllm"), ("litegate-rediss", "redis"), ("postgresql", "postgres")]
)
def test_a_slip_installs_no_strangers_package(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str], name: str, near: str
) -> None:
    assert main(["install", name]) == 2
    assert commands == []
    said = capsys.readouterr().err
    assert f'did you mean "{near}"?' in said
    assert f"`pip install {name}`" in said
    assert main(["install", f"./{name}", f"{name}==1.0"]) == 0


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nothing", 1, f"nothing was installed, but has no plugin of the gateway; `{sys.executable} -m pip uninstall nothing` removes it.\n"),
        ("msgspec", 1, "msgspec has no plugin of the gateway; it was installed before.\n"),
        ("My_Own", 0, ""),
        ("redis", 0, ""),
        ("./folder", 0, ""),
    ],
)  # fmt: skip
def test_a_package_without_a_plugin_is_exit_code_1(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(install, "_plugins_now", lambda: ["memory", "own"])
    assert main(["install", name]) == code
    out, err = capsys.readouterr()
    assert out == "No new plugin was installed.\n"
    assert err.endswith(said)
    assert err.count("\n") == code


def test_uv_installs_where_there_is_no_pip(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.util, "find_spec", lambda name: None)
    monkeypatch.setattr(install.shutil, "which", lambda name: "/bin/uv")
    assert main(["install", "redis"]) == 0
    assert commands == [["/bin/uv", "pip", "install", "--python", sys.executable, "litegate-redis"]]
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    assert main(["install", "redis"]) == 2


@pytest.mark.parametrize("name", ["memory", "litegate-memory", "my-own"])
def test_a_plugin_is_removed(commands: list[list[str]], name: str) -> None:
    assert main(["uninstall", "--yes", name]) == 0
    [command] = commands
    assert command[3:] == ["uninstall", name if name == "my-own" else "litegate-memory", "--yes"]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_removing_asks(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("builtins.input", lambda text: answer)
    assert main(["uninstall", "memory"]) == code
    assert bool(commands) == (code == 0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("memry", 'did you mean "memory"?'),
        ("cassandra", "installed: memory, my-own."),
        ("litegate", "litegate is the gateway itself"),
        ("msgspec", "no plugin of the package 'msgspec' is installed"),
    ],
)
def test_only_plugins_are_removed(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    assert main(["uninstall", "--yes", name]) == 2
    assert sentence in capsys.readouterr().err
    assert commands == []


def test_the_list_of_plugins_can_be_narrowed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gateway.cli.plugins.is_installed", lambda name: name != "litegate-redis")

    def rows(*arguments: str) -> list[dict[str, str]]:
        assert main(["plugins", "--json", *arguments]) == 0
        found: list[dict[str, str]] = json.loads(capsys.readouterr().out)
        return found

    assert {row["kind"] for row in rows("--kind", "store")} == {"store"}
    assert {row["state"] for row in rows("--selected")} <= {"selected", "active"}
    [missing] = [row for row in rows("--all") if row["state"] == "not installed"]
    assert (missing["distribution"], missing["kind"]) == ("litegate-redis", "store")
    assert missing["note"] == "gateway install litegate-redis"


@pytest.mark.slow
def test_a_wheel_is_installed_and_removed_in_a_real_environment(tmp_path: Path) -> None:
    place = tmp_path / "env"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    # The environment finds the gateway and its dependencies where these tests do.
    site = next((place / "lib").glob("python*/site-packages"))
    (site / "tests.pth").write_text("\n".join(path for path in sys.path if path), encoding="utf-8")
    wheel = tmp_path / "own_plugin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("own_plugin.py", "import gateway\n")
        info = "own_plugin-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: own-plugin\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/entry_points.txt", "[gateway]\nown = own_plugin\n")
        file.writestr(f"{info}/RECORD", "")

    def gateway(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
        command = [python, "-m", "gateway", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    done = gateway("install", str(wheel))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("New plugins: own.\n")
    assert "own-plugin" in gateway("plugins", "--json").stdout
    done = gateway("uninstall", "--yes", "own-plugin")
    assert done.returncode == 0, done.stderr
    assert "own-plugin" not in gateway("plugins", "--json").stdout


def test_the_gateway_does_not_remove_itself() -> None:
    with pytest.raises(ConfigurationError):
        install._installed_package("litegate")
