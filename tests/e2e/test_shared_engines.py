"""Workers that share an engine: one queue, and faults that hit only whom they must."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import running_requests
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
]

CONFIG = """
[server]
port = {port}
workers = 2
store = "none"
grace_period = 1

[models.m]
engine = "scripted"
parser = "qwen3"
max_running = 4
max_waiting = 2

[models.m.scripted]
delay_ms = 30
"""
LONG = {"model": "m", "input": "word " * 150, "stream": True}


@pytest.fixture
def server(start_server: Any) -> Any:
    made = start_server(CONFIG)
    wait_until(lambda: made.log.count("Started server process") == 2)
    return made


def processes(server: Any, mark: str) -> list[int]:
    """The children of the server with `mark` in their command."""
    found = []
    for entry in filter(lambda each: each.name.isdigit(), Path("/proc").iterdir()):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_text()
        except OSError:
            continue
        if parent == server.process.pid and mark in command:
            found.append(int(entry.name))
    return found


class Stream:
    """A response that is streamed, on a connection of its own."""

    def __init__(self, server: Any) -> None:
        self.text = ""
        self.broken = False
        self.began = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(server.url,), daemon=True)
        self._thread.start()

    def _read(self, url: str) -> None:
        try:
            with httpx.stream("POST", f"{url}/v1/responses", json=LONG, timeout=60) as answer:
                for chunk in answer.iter_text():
                    self.text += chunk
                    if ".delta" in chunk:
                        self.began.set()
        except httpx.HTTPError:
            self.broken = True
        self.began.set()

    def wait(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def status(server: Any) -> int:
    try:
        return httpx.get(f"{server.url}/ready", timeout=30).status_code
    except httpx.HTTPError:
        return 0


def test_there_is_one_engine_and_one_queue(server: Any) -> None:
    assert len(processes(server, "engine_main")) == 1
    body = {**LONG, "stream": False}

    def ask(_: int) -> int:
        return httpx.post(f"{server.url}/v1/responses", json=body, timeout=60).status_code

    with ThreadPoolExecutor(12) as pool:
        seen = list(pool.map(ask, range(12)))
    # Two queues would have places for all twelve.
    assert set(seen) == {200, 429}
    assert seen.count(200) >= 6


def test_a_killed_worker_takes_its_own_streams_with_it_and_frees_their_slots(server: Any) -> None:
    streams = [Stream(server) for _ in range(4)]
    for stream in streams:
        assert stream.began.wait(60)
    os.kill(processes(server, "spawn_main")[0], signal.SIGKILL)
    for stream in streams:
        stream.wait()
    for stream in streams:
        assert stream.broken != ("response.completed" in stream.text)
    with server.http() as http:
        wait_until(lambda: running_requests(http, "m") == 0, "nothing is shown as running")
    again = [Stream(server) for _ in range(4)]
    for stream in again:
        stream.wait()
    assert sum("response.completed" in stream.text for stream in again) >= 1
    assert len(processes(server, "engine_main")) == 1


def test_a_killed_engine_fails_what_runs_and_comes_back(server: Any) -> None:
    stream = Stream(server)
    assert stream.began.wait(60)
    [engine] = processes(server, "engine_main")
    os.kill(engine, signal.SIGKILL)
    stream.wait()
    assert "response.failed" in stream.text
    assert "process has ended" in stream.text
    seen = set()
    wait_until(lambda: seen.add(status(server)) or 503 in seen or processes(server, "engine_main"))
    wait_until(
        lambda: status(server) == 200 and processes(server, "engine_main") not in ([], [engine])
    )
    again = Stream(server)
    again.wait()
    assert "response.completed" in again.text


def test_a_stop_signal_lets_streams_end_and_leaves_no_process(server: Any) -> None:
    stream = Stream(server)
    assert stream.began.wait(60)
    all_of_them = processes(server, "engine_main") + processes(server, "spawn_main")
    assert len(all_of_them) == 3
    assert server.stop() == 0
    stream.wait()
    assert not stream.broken
    assert "shut down" in stream.text or "response.completed" in stream.text
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in all_of_them))
    assert "Traceback" not in server.log
