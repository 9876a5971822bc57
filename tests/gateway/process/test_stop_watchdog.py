"""The process that ends the server: what it says of the place where the server was."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.process import stop_watchdog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it ends a process by a signal")

SERVER = """
import os, subprocess, sys, time
from gateway.process import stop_watchdog
stop_watchdog._install_exit_handler()
watchdog = subprocess.Popen([sys.executable, "-I", "-S", stop_watchdog.__file__, str(os.getpid()), "3"], stdin=subprocess.PIPE)
for piece in PIECES:
    watchdog.stdin.write(piece)
    watchdog.stdin.flush()
    time.sleep(0.1)
time.sleep(600)
"""
FRAMES = b'  File "stuck.py", line 7 in generate\n  File "server.py", line 1 in main\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    "pieces",
    [
        [b"Stack (most recent call first):\n" + FRAMES],
        [b"Stack (most recent call", b" first):\n", FRAMES],
        [b"Stack", b" (most recent call first):\n", FRAMES[:20], FRAMES[20:]],
    ],
)
def test_a_traceback_that_comes_in_pieces_is_read_whole(pieces: list[bytes]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER.replace("PIECES", repr(pieces))],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == stop_watchdog.EXIT_CODE
    assert 'it was in File "stuck.py", line 7 in generate' in done.stderr


@pytest.mark.parametrize(
    ("signals", "end"), [([4.9], 19.9), ([4.9, 12.0], 17.0), ([0.0, 1.0, 2.5], 6.0)]
)
def test_the_time_that_is_left_begins_with_the_signal(
    monkeypatch: pytest.MonkeyPatch, signals: list[float], end: float
) -> None:
    """However long the process had waited for one. A second signal leaves five seconds."""
    now = 0.0
    waiting = list(signals)
    ended: list[float] = []

    def wait(_read: Any, write: list[int], _error: Any, seconds: float) -> tuple[list[int], ...]:
        nonlocal now
        if write:
            return [], write, []
        comes = waiting[0] if waiting else float("inf")
        now = min(now + seconds, max(now, comes))
        return ([0] if now >= comes else [], [], [])

    def read(_file: int, _size: int) -> bytes:
        del waiting[0]
        return b"Stack (most recent call first):\n" + FRAMES

    clock = SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None, strftime=lambda _: "")
    system = SimpleNamespace(
        read=read,
        write=lambda _file, line: len(line),
        getppid=lambda: 1 if ended else 7,
        kill=lambda _pid, _sig: ended.append(now),
    )
    monkeypatch.setattr(stop_watchdog, "os", system)
    monkeypatch.setattr(stop_watchdog, "signal", Mock())
    monkeypatch.setitem(sys.modules, "select", SimpleNamespace(select=wait))
    monkeypatch.setitem(sys.modules, "time", clock)
    stop_watchdog.watch(7, 15.0)
    monkeypatch.undo()
    assert ended == [pytest.approx(end)]
