"""What the tests of several plugins look at."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.testing.redis_process import RedisProcess

StartRedis = Callable[..., RedisProcess]


class Sandboxes:
    """The sandboxes of all gateways of this process."""

    def count(self) -> int:
        """How many have not ended."""
        return sum(self._is_keeper(entry) for entry in Path("/proc").iterdir())

    def none_left(self) -> None:
        """All end, soon after their responses."""
        for _ in range(100):
            if self.count() == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.count()} processes of sandboxes are left")

    @staticmethod
    def _is_keeper(entry: Path) -> bool:
        if not entry.name.isdigit():
            return False
        try:
            command = (entry / "cmdline").read_bytes()
            status = (entry / "status").read_text()
        except OSError:
            return False
        own = f"PPid:\t{os.getpid()}\n" in status
        return b"jail.keeper" in command and own and "State:\tZ" not in status


@pytest.fixture(scope="session")
def sandboxes() -> Sandboxes:
    return Sandboxes()


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
    return ",".join([f"redis+cluster://127.0.0.1:{nodes[0].port}", f"127.0.0.1:{nodes[1].port}"])
