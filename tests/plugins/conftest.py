"""What the tests of several plugins look at."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway_testing.redis_process import RedisProcess
from tests.waiting import wait_until

StartRedis = Callable[..., RedisProcess]


class Sandboxes:
    """The sandboxes of all gateways of this process."""

    def count(self) -> int:
        """How many have not ended."""
        return sum(self._is_keeper(entry) for entry in Path("/proc").iterdir())

    def none_left(self) -> None:
        """All end, after their responses."""
        wait_until(lambda: self.count() == 0, "no process of a sandbox is left")

    def running(self, command: str) -> bool:
        """Whether a process below this one has `command` in its command line. Those of other test runs do not count."""
        parents: dict[int, int] = {}
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                stat = (entry / "stat").read_text(errors="replace")
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            if command in line.replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(entry.name))
        for at in found:
            while (at := parents.get(at, 0)) > 1:
                if at == os.getpid():
                    return True
        return False

    def wait_for(self, command: str) -> None:
        """Wait until a process with `command` in its command line runs below this one."""
        wait_until(lambda: self.running(command), f"{command!r} runs")

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

    def formed(node: RedisProcess) -> bool:
        with socket.create_connection(("127.0.0.1", node.port), timeout=60) as connection:
            connection.sendall(b"CLUSTER INFO\r\n")
            return b"cluster_state:ok" in connection.recv(4096)

    for node in nodes:
        wait_until(lambda node=node: formed(node), "the cluster has formed")
    return ",".join([f"redis+cluster://127.0.0.1:{nodes[0].port}", f"127.0.0.1:{nodes[1].port}"])
