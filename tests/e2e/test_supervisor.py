"""A supervisor that is killed leaves no worker behind that holds the port, and one that runs replaces a worker that hangs."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
]

WORKERS = """
[server]
port = {port}
workers = 2
store = "none"
grace_period = 1

[models.scripted]
engine = "scripted"
path = "{scenario}"
"""


def children(process: int) -> set[int]:
    """The processes below `process`."""
    found: set[int] = set()
    for entry in filter(lambda each: each.name.isdigit(), Path("/proc").iterdir()):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == process:
            found |= {int(entry.name)} | children(int(entry.name))
    return found


def runs(process: int) -> bool:
    """Whether the process is there, and is not waited for only."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_its_workers_end_and_the_port_is_free(start_server: Any) -> None:
    server = start_server(WORKERS)
    workers = children(server.process.pid)
    assert len(workers) >= 2
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(60)
    wait_until(lambda: not any(map(runs, workers)), "its workers have ended")
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", int(server.url.rpartition(":")[2])))
        again.listen()


def workers_of(supervisor: int) -> set[int]:
    """Its processes that `multiprocessing` has spawned."""
    found = set()
    for each in children(supervisor):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if b"multiprocessing.spawn" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.add(each)
    return found


def test_a_stopped_worker_is_replaced(start_server: Any) -> None:
    server = start_server(WORKERS.replace("workers = 2", "workers = 2\nworker_timeout = 10"))
    body = {"model": "scripted", "input": "hello"}
    with server.http() as http:
        wait_until(lambda: server.log.count("Started server process") == 2, "both workers run")
        # Their event loops run: a worker that only starts may take any time.
        wait_until(lambda: http.get("/v1/gateway/runs").json()["answered"] == 2, "both answer")
        assert http.post("/v1/responses", json=body).status_code == 200
    before = workers_of(server.process.pid)
    stopped = min(before)
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: not runs(stopped), "the stopped worker is killed")
    wait_until(lambda: len(workers_of(server.process.pid)) == 2, "another one is started")
    assert f"worker {stopped} has not run its event loop for 10 s (worker_timeout)" in server.log
    with server.http() as http:
        assert http.post("/v1/responses", json=body).status_code == 200
    assert server.stop() == 0
