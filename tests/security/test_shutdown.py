"""A stop signal ends the server within the grace period plus five seconds, whatever an engine does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gateway.process.stop_watchdog import EXIT_CODE
from gateway.process.workers import END_SECONDS
from gateway_testing.free_ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GRACE = 1
# An engine that gets stuck in the way that its path says.
ENGINE = """
import asyncio, ctypes, re, threading, time
from pathlib import Path
from contextlib import asynccontextmanager
from gateway import hookimpl
from gateway_scripted.engine import ScriptedEngine


class Stuck(ScriptedEngine):
    how = ""

    async def generate(self, request):
        Path(__file__).with_name("reached").touch()
        if self.how == "pattern":
            re.match("(a+)+$", "a" * 60 + "b")  # holds the interpreter's lock
        elif self.how == "native":
            while True:
                ctypes.PyDLL(None).sleep(600)  # so does this, but for a moment at a signal
        elif self.how == "thread":
            await asyncio.to_thread(time.sleep, 600)
        elif self.how == "cancel":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
        async for output in super().generate(request):
            yield output


@asynccontextmanager
async def open_stuck(config, context):
    engine = Stuck(name=context.name)
    engine.how = context.path
    yield engine
    if engine.how == "close":
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    if engine.how == "close-thread":
        threading.Thread(target=time.sleep, args=(600,)).start()


@hookimpl
def gateway_register_engines(register):
    register("stuck", open_stuck)
"""
CONFIG = """
[server]
port = {port}
store = "none"
grace_period = {grace}
workers = {workers}

[models.m]
engine = "stuck"
process = "{kept}"
path = "{how}"
"""

Start = Callable[..., tuple["subprocess.Popen[bytes]", str, Path]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server whose engine gets stuck; its process, address and log."""
    (tmp_path / "stuck_engine.py").write_text(ENGINE)
    described = tmp_path / "stuck_engine-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: stuck-engine\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[gateway]\nstuck = stuck_engine\n")
    processes = []

    def started(
        how: str, workers: int = 1, kept: str = "server"
    ) -> tuple[subprocess.Popen[bytes], str, Path]:
        port = free_port()
        file, log = tmp_path / "gateway.toml", tmp_path / "log"
        file.write_text(CONFIG.format(port=port, grace=GRACE, workers=workers, how=how, kept=kept))
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
                start_new_session=True,
            )
        processes.append(process)
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            with suppress(httpx.TransportError):
                return httpx.get(f"{url}/ready", timeout=30).status_code == 200
            return False

        wait_until(ready, "the server's start", 120)
        return process, url, log

    yield started
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(url: str, log: Path) -> None:
    """Send a request in a thread, and wait until the engine has it: nobody waits for the answer."""

    def send() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"}, timeout=300)

    threading.Thread(target=send, daemon=True).start()
    wait_until((log.parent / "reached").exists, "the engine is reached")
    time.sleep(0.5)  # and it is stuck at its next line


def wait_for_end(process: subprocess.Popen[bytes]) -> None:
    """What is stuck would keep the server for ten minutes."""
    process.wait(GRACE + END_SECONDS + 60)


@pytest.mark.parametrize("how", ["pattern", "native", "thread", "cancel"])
def test_a_stuck_engine_does_not_keep_the_server_from_ending(start: Start, how: str) -> None:
    process, url, log = start(how)
    ask(url, log)
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    assert process.returncode == EXIT_CODE
    assert log.read_text().count("did not end within") == 1


def test_the_log_says_where_the_server_was_stuck(start: Start) -> None:
    process, url, log = start("native")
    ask(url, log)
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    line = next(line for line in log.read_text().splitlines() if "did not end within" in line)
    assert f"{GRACE + END_SECONDS} s" in line
    assert "stuck_engine.py" in line
    assert " in generate" in line


@pytest.mark.parametrize("how", ["close", "close-thread"])
def test_an_engine_that_does_not_close_does_not_keep_the_server_from_ending(
    start: Start, how: str
) -> None:
    process, _, log = start(how)
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    assert process.returncode == EXIT_CODE
    assert "did not end within" in log.read_text()


def test_a_second_signal_does_not_prolong_the_end(start: Start) -> None:
    process, url, log = start("pattern")
    ask(url, log)
    process.send_signal(signal.SIGTERM)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    wait_for_end(process)
    assert process.returncode == EXIT_CODE


def test_workers_that_are_stuck_are_ended_too(start: Start) -> None:
    process, url, log = start("pattern", workers=2)
    ask(url, log)
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    assert "did not end within" in log.read_text()


def test_an_engine_that_is_stuck_in_its_own_process_is_ended_too(start: Start) -> None:
    process, url, log = start("pattern", workers=2, kept="own")
    ask(url, log)
    group = process.pid
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    wait_until(lambda: processes_of(group) == [], "no process is left")
    said = log.read_text()  # by its own watchdog or by the server, whichever looks first
    assert "did not end within" in said or "did not end in time and was killed" in said


def test_a_worker_without_its_watchdog_is_ended_by_the_supervisor(start: Start) -> None:
    process, url, log = start("pattern", workers=2)

    def watchdogs() -> list[int] | None:
        """Those of both workers: one may start later than the other, which is ready."""
        found = []
        for child in children_of(process.pid):
            for each in children_of(child):
                with suppress(OSError):
                    if b"stop_watchdog" in Path(f"/proc/{each}/cmdline").read_bytes():
                        found.append(each)
        return found if len(found) == 2 else None

    for each in wait_until(watchdogs, "the watchdogs of both workers") or ():
        os.kill(each, signal.SIGKILL)
    ask(url, log)
    process.send_signal(signal.SIGTERM)
    wait_for_end(process)
    assert "was killed" in log.read_text()


def test_a_clean_stop_is_no_failure_and_leaves_no_process(start: Start) -> None:
    process, url, log = start("")
    assert httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"}).is_success
    group = process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(GRACE + END_SECONDS + 60) == 0
    assert "did not end within" not in log.read_text()
    wait_until(lambda: processes_of(group) == [], "no process is left")


def children_of(parent: int) -> list[int]:
    return [pid for pid, fields in stats() if fields[1] == parent]


def processes_of(group: int) -> list[int]:
    return [pid for pid, fields in stats() if fields[2] == group and fields[0] != "Z"]


def stats() -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Of each process its state, parent and process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, parent, group, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), (state, int(parent), int(group))
