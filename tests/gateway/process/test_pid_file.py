"""The files by which `gateway reload` finds the servers of a configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.process.pid_file import pid_file, servers_of


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_server_is_found_by_each_path_to_its_file(tmp_path: Path) -> None:
    file, link = tmp_path / "gateway.toml", tmp_path / "link.toml"
    file.touch()
    link.symlink_to(file)
    with pid_file(link):
        assert servers_of(link) == servers_of(file) == [os.getpid()]
        assert servers_of(tmp_path / "other.toml") == []
    assert servers_of(link) == servers_of(file) == []
    assert list((tmp_path / f"litegate-{os.getuid()}").iterdir()) == []


def test_a_server_is_found_after_its_link_leads_elsewhere(tmp_path: Path) -> None:
    """As a ConfigMap changes: `gateway.toml` leads through the link of a folder, which is exchanged."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gateway.toml").touch()
    data, config = tmp_path / "..data", tmp_path / "gateway.toml"
    data.symlink_to("old")
    config.symlink_to("..data/gateway.toml")
    with pid_file(config):
        (tmp_path / "next").symlink_to("new")
        (tmp_path / "next").replace(data)
        assert servers_of(config) == [os.getpid()]
    assert servers_of(config) == []
