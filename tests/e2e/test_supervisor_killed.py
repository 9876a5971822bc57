"""A supervisor that is killed leaves no worker behind that holds the port."""

from __future__ import annotations

import os
import signal
import socket
import sys
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
