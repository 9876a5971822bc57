"""A server on a Unix socket: requests, permissions, files that are left behind, workers, reload, the service manager."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from websockets.sync.client import unix_connect

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ServerConfig
from gateway.process.event_loop import new_event_loop
from gateway.process.listening import bound, check_address, listen
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import run_gateway
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs Unix sockets")

MODELS = {"m": {"engine": "scripted"}}
BODY = {"model": "m", "input": "hi"}


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: those of sockets have 107 bytes at most."""
    return Path(tmp_path_factory.mktemp("u")) / "s"


def client(path: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(path))
    return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)


def config_of(path: Path, **fields: Any) -> Config:
    return Config(server=ServerConfig(unix_socket=str(path), **fields), models={})


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
def test_all_of_the_api_is_there(
    path: Path, tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    config = {"server": {"unix_socket": str(path)}, "models": MODELS}
    with run_gateway(config, tmp_path, loop_factory=loop) as gateway, client(path) as http:
        assert gateway.base_url == "http://localhost/v1"
        assert http.get("/ready").status_code == 200
        made = http.post("/v1/responses", json=BODY).json()
        assert http.get(f"/v1/responses/{made['id']}").json()["id"] == made["id"]
        streamed = http.post("/v1/responses", json={**BODY, "stream": True})
        assert fold(parse_sse(streamed.content))["status"] == "completed"
        assert http.post("/v1/responses", json={}).status_code == 400
        # Pages of a browser are refused as on loopback.
        assert http.get("/v1/models", headers={"host": "evil.example"}).status_code == 403
        with unix_connect(str(path), uri="ws://localhost/v1/responses") as socket_:
            socket_.send(json.dumps({"type": "response.create", **BODY}))
            while (event := json.loads(socket_.recv(60)))["type"] != "response.completed":
                assert event["type"] != "error", event
    assert not path.exists()


@pytest.mark.parametrize("mode", ["600", "0660", "666"])
def test_who_may_connect(path: Path, mode: str) -> None:
    with bound(config_of(path, unix_socket_mode=mode)):
        found = path.stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == int(mode, 8)
        assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600


def test_a_file_that_a_killed_server_has_left_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.listen()
    left.close()
    with bound(config_of(path)) as listening:
        listen(listening, 8)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(path))
    assert not path.exists()


def test_another_server_is_not_pushed_aside(path: Path) -> None:
    """Whether it listens already or is about to, and whatever program it is."""
    with (
        bound(config_of(path)),
        pytest.raises(ConfigurationError, match="Another server"),
        bound(config_of(path)),
    ):
        pass
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        with pytest.raises(ConfigurationError, match="Another server"), bound(config_of(path)):
            pass
        assert path.exists()


def test_doctor_leaves_a_server_alone_that_listens(path: Path) -> None:
    """And what a server has left, and what is not there."""
    config = config_of(path)
    check_address(config)
    assert list(path.parent.iterdir()) == []
    with bound(config) as listening:
        listen(listening, 8)
        before = path.stat(), Path(f"{path}.lock").stat()
        with pytest.raises(ConfigurationError, match="Another server"):
            check_address(config)
        assert (path.stat(), Path(f"{path}.lock").stat()) == before
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    check_address(config)
    assert path.exists()


@pytest.mark.parametrize("where", ["file", "missing/s", "x" * 200])
def test_doctor_finds_where_no_server_can_listen(path: Path, where: str) -> None:
    (path.parent / "file").touch()
    with pytest.raises(ConfigurationError, match="unix_socket under"):
        check_address(config_of(path.parent / where))


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_not_removed(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/null")
    with pytest.raises(ConfigurationError, match="not a Unix socket"), bound(config_of(path)):
        pass
    assert path.is_symlink() or path.exists()


def test_a_lock_file_that_is_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    Path(f"{path}.lock").symlink_to(target)
    with pytest.raises(ConfigurationError, match="cannot listen"), bound(config_of(path)):
        pass
    assert not target.exists()


@pytest.mark.parametrize("wrong", ["/no/such/folder/s", "/tmp/" + "x" * 150, "nul\0"])
def test_a_path_that_cannot_be_used_is_one_sentence(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="unix_socket"), bound(config_of(Path(wrong))):
        pass


def test_a_file_of_another_is_not_removed_at_the_end(path: Path) -> None:
    with bound(config_of(path)):
        path.unlink()
        path.write_text("new")
    assert path.read_text() == "new"


def test_no_key_is_needed_but_those_there_are_count(path: Path, tmp_path: Path) -> None:
    from gateway.access.access import check_access, hash_key

    check_access(replace(config_of(path).server, host="0.0.0.0"))
    keys = [{"name": "a", "sha256": hash_key("sk-a")}]
    config = {"server": {"unix_socket": str(path), "api_keys": keys}, "models": MODELS}
    with run_gateway(config, tmp_path), client(path) as http:
        assert http.get("/v1/models").status_code == 401
        known = {"authorization": "Bearer sk-a"}
        assert http.get("/v1/models", headers=known).status_code == 200


class Manager:
    """A service manager's socket, and what it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(60)

    def told(self) -> str:
        return self.socket.recv(1000).decode()


@contextmanager
def served(path: Path, folder: Path, *, workers: int) -> Iterator[tuple[Any, Path, Manager]]:
    manager = Manager(path.parent / "n")
    log = folder / "log"
    file = folder / "gateway.toml"
    file.write_text(
        f'[server]\nunix_socket = "{path}"\nworkers = {workers}\nstore = "none"\n[models.m]\nengine = "scripted"\n'
    )
    own = {k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**own, "NOTIFY_SOCKET": str(manager.path), "XDG_RUNTIME_DIR": str(folder)},
        )
    try:
        yield process, log, manager
    finally:
        process.kill()
        process.wait()
        manager.socket.close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_process_on_a_unix_socket(
    path: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service manager is told when it can be used and when it stops; `gateway reload` finds it."""
    with served(path, tmp_path, workers=workers) as (process, log, manager):
        assert manager.told() == "READY=1", log.read_text()
        with client(path) as http:
            assert http.post("/v1/responses", json=BODY).json()["status"] == "completed"
        assert f"Litegate listens on the Unix socket {path}" in log.read_text()
        assert f"curl --unix-socket {path} http://localhost/v1/responses" in log.read_text()
        file = tmp_path / "gateway.toml"
        file.write_text(file.read_text() + '[models.second]\nengine = "scripted"\n')
        asked = subprocess.run(
            [sys.executable, "-m", "gateway", "reload", "--config", str(file)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        wait_until(lambda: log.read_text().count("is used now") >= workers)
        with client(path) as http:
            assert len(http.get("/v1/models").json()["data"]) == 2
        process.send_signal(signal.SIGTERM)
        assert manager.told() == "STOPPING=1"
        assert process.wait(60) == 0
        assert not path.exists()
        assert "Traceback" not in log.read_text()
