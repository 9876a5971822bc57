"""Programs of MCP servers end with the gateway, however it ends, and leave no zombies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gateway_mcp.program_keeper import command_with_keeper
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of the kernel of Linux")

GATEWAY = """
import subprocess, sys, time
from gateway_mcp.program_keeper import command_with_keeper
subprocess.Popen(command_with_keeper([sys.executable, *sys.argv[1:]]), stdin=subprocess.PIPE, start_new_session=True)
time.sleep(60)
"""
STUBBORN = """
import os, signal, subprocess, sys, time
for number in eval(sys.argv[2]): signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "97.0731"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
sys.stdin.read()  # and does not end with it
time.sleep(60)
"""


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("ignored", ["()", "(15, 2, 1)"], ids=["plain", "ignores signals"])
def test_a_program_that_ignores_the_end_of_its_input_ends_with_a_killed_gateway(
    tmp_path: Path, ignored: str
) -> None:
    told = tmp_path / "pids"
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, "-c", STUBBORN, str(told), ignored])
    wait_until(lambda: told.exists() and len(told.read_text().split()) == 2, "the program")
    processes = [int(each) for each in told.read_text().split()]
    assert all(map(runs, processes))
    gateway.kill()
    gateway.wait()
    wait_until(lambda: not any(map(runs, processes)), "the end of the program and its child")


def test_the_exit_code_and_the_streams_are_the_programs() -> None:
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(7)"
    ran = subprocess.run(
        command_with_keeper([sys.executable, "-c", code]),
        input="abc",
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "ABC\n", "")
    killed = subprocess.run(
        command_with_keeper([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    )
    assert killed.returncode == 137
    absent = subprocess.run(command_with_keeper(["/no/such"]), capture_output=True, text=True)
    assert (absent.returncode, absent.stderr) == (127, "/no/such: No such file or directory\n")


def test_what_a_program_leaves_behind_is_reaped() -> None:
    code = textwrap.dedent("""
        import os, subprocess, time
        for _ in range(20): subprocess.run(["sh", "-c", "true & exec true"])
        time.sleep(0.3)
        keeper, zombies = os.getppid(), 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            try: fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
            except OSError: continue
            zombies += fields[0] == "Z" and int(fields[1]) in (keeper, os.getpid())
        print(zombies)
    """)
    ran = subprocess.run(
        command_with_keeper([sys.executable, "-c", code]), capture_output=True, text=True
    )
    assert ran.stdout == "0\n", ran.stderr


def test_a_stop_ends_a_program_that_does_not_end_by_itself(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    keeper = subprocess.Popen(
        command_with_keeper([sys.executable, "-c", STUBBORN, str(told), "(15,)"]),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until(lambda: told.exists() and len(told.read_text().split()) == 2, "the program")
    began = time.monotonic()
    os.kill(keeper.pid, signal.SIGTERM)
    assert keeper.wait(timeout=30) == -signal.SIGKILL
    assert time.monotonic() - began > 1, "it had time to end"
    wait_until(lambda: not any(map(runs, map(int, told.read_text().split()))), "the end")
    assert keeper.stdin is not None
    keeper.stdin.close()
