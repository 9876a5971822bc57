"""What `gateway doctor` tells about the programs of MCP servers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gateway.sdk import CheckableConfig
from gateway_mcp.config import McpConfig, McpServerConfig
from gateway_mcp.programs import why_not_started


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_name_is_looked_for_in_the_path_that_the_program_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "server")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert why_not_started("server", {}, None) is None
    assert "is not installed: PATH (/nowhere)" in str(why_not_started("server", {"PATH": "/nowhere"}, None))  # fmt: skip
    assert "the program 'other' is not installed" in str(why_not_started("other", {}, None))
    monkeypatch.setenv("PATH", "/nowhere")
    assert why_not_started("server", {"PATH": str(tmp_path / "bin")}, None) is None


def test_a_relative_path_is_one_of_the_working_folder(tmp_path: Path) -> None:
    program(tmp_path / "other" / "server")
    assert why_not_started("./server", {}, str(tmp_path / "other")) is None
    assert why_not_started("other/server", {}, None) is None
    said = why_not_started("./server", {}, None)
    assert said == f"there is no program './server' (relative to {str(tmp_path)!r})."
    assert "(cwd) does not exist" in str(why_not_started("./server", {}, str(tmp_path / "absent")))


def test_a_file_that_may_not_be_executed_is_told(tmp_path: Path) -> None:
    path = program(tmp_path / "server", 0o644)
    assert "may not be executed" in str(why_not_started(str(path), {}, None))
    assert "is no file" in str(why_not_started(str(tmp_path), {}, None))


@pytest.mark.parametrize("method", ["is_dir", "exists", "is_file"])
def test_a_folder_that_this_user_may_not_enter_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    path = program(tmp_path / "server")

    def denied(self: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, method, denied)
    said = str(why_not_started(str(path), {}, str(tmp_path)))
    assert "cannot be reached by this user: Permission denied." in said


def test_each_server_is_told_by_its_key_and_urls_are_not_asked() -> None:
    config = McpConfig(
        servers={
            "a": McpServerConfig(command=["/absent/a"]),
            "b": McpServerConfig(url="http://127.0.0.1:9/mcp"),
            "c": McpServerConfig(command=["/absent/c", "x"]),
        }
    )
    assert isinstance(config, CheckableConfig)
    assert list(config.problems()) == [
        "servers.a.command: there is no program '/absent/a'.",
        "servers.c.command: there is no program '/absent/c'.",
    ]
