"""The process that ends the server: what it says of the place where the server was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.server import stop_watchdog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it ends a process by a signal")

SERVER = """
import os, subprocess, sys, time
from gateway.server import stop_watchdog
stop_watchdog._install_exit_handler()
watchdog = subprocess.Popen([sys.executable, "-I", "-S", stop_watchdog.__file__, str(os.getpid()), "1"], stdin=subprocess.PIPE)
for piece in PIECES:
    watchdog.stdin.write(piece)
    watchdog.stdin.flush()
    time.sleep(0.3)
time.sleep(600)
"""
FRAMES = b'  File "stuck.py", line 7 in generate\n  File "server.py", line 1 in main\n'


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
