"""Running a real PostgreSQL for tests, from the PATH or from the folder of Debian's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway_testing.free_ports import free_port

START_SECONDS = 60.0
_USER = "nobody"
"""The user who runs the server if the tests run as root: PostgreSQL does not start as root."""


def postgres_programs() -> Path:
    """The folder of PostgreSQL's server programs. Raises `FileNotFoundError` if there is none."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise FileNotFoundError("There is no PostgreSQL server: install Debian's package postgresql.")


class PostgresProcess:
    """A PostgreSQL server that can be killed and restarted on the same port. Clients need no password."""

    def __init__(self, *options: str, address: str = "127.0.0.1") -> None:
        """`options` are settings, as `name=value`. The server listens on the IPv4 address `address`, for clients in its
        /24 network."""
        self._programs = postgres_programs()
        self._options = [word for option in options for word in ("-c", option)]
        # Not in a folder of pytest, because other users cannot enter these.
        self._folder = Path(tempfile.mkdtemp(prefix="litegate-postgres-"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()
        self.url = f"postgresql://postgres@{address}:{self.port}/postgres"
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._run("initdb", "--pgdata", str(self._folder / "data"), "--auth", "trust", "--username", "postgres",
                      "--encoding", "UTF8", "--locale", "C", "--no-sync")  # fmt: skip
            with (self._folder / "data" / "pg_hba.conf").open("a") as clients:
                clients.write(f"host all all {address}/24 trust\n")
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            self._process = subprocess.Popen(  # noqa: S603  # a test's own words
                [self._programs / "postgres", "-D", self._folder / "data", "-p", str(self.port), "-k", self._folder,
                 "-c", f"listen_addresses={self._address}", "-c", "fsync=off", "-c", "max_connections=200", *self._options],
                cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                **self._as,
            )  # fmt: skip
            while self._process.poll() is None and time.monotonic() < end:
                if self._answers():
                    return
                time.sleep(0.05)
            time.sleep(0.2)  # processes of the killed server may still use its shared memory
        self.kill()
        raise RuntimeError("postgres did not start")

    def kill(self) -> None:
        """End the server immediately, without a clean shutdown. It recovers at its next start."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def pause(self) -> None:
        """Suspend all processes of the server, so that it accepts connections but does not answer."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Kill the server and delete its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """User and system CPU time of the server's processes, in seconds."""
        total = 0
        for each in self._processes():
            try:
                stat = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # Including the time of child processes that have ended.
            total += sum(map(int, stat[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def ask(self, sql: str) -> str:
        """Run a statement. Returns the answer as `psql` prints it, without alignment and headers."""
        return self._run(
            "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", sql
        )

    def _answers(self) -> bool:
        try:
            return self.ask("SELECT 1").strip() == "1"
        except subprocess.CalledProcessError:
            return False

    def _signal_all(self, number: signal.Signals) -> None:
        for each in self._processes():
            with suppress(ProcessLookupError):  # a process for a connection may have ended
                os.kill(each, number)

    def _processes(self) -> list[int]:
        """The process ids of the server and its children."""
        assert self._process is not None
        found = [self._process.pid]
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self._process.pid:
                found.append(int(stat.parent.name))
        return found

    def _run(self, program: str, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603  # a test's own words
            [self._programs / program, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=True,
            **self._as,
        )
        return done.stdout
