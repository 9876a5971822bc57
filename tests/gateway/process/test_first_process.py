"""The gateway as the first process of a container: a PID namespace stands for it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"]).returncode:
        pytest.skip("there can be no PID namespace here")


def first(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a program says that runs as process 1."""
    return subprocess.run(
        [*NAMESPACE, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


ORPHANS = """
import os, subprocess, time
from gateway.process.first_process import leave_first_process
leave_first_process()
for _ in range(20):
    own = subprocess.Popen(["sh", "-c", "(sleep 0.05 &) ; exit 7"])
    assert own.wait() == 7, "its own child's exit code is its own"
end = time.monotonic() + 20
while time.monotonic() < end:
    states = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try: fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError: continue
        states.append(fields[0])
    if len(states) == 2: break
    time.sleep(0.02)
print(os.getpid() != 1, os.getppid(), len(states), states.count("Z"))
"""


def test_orphans_are_reaped_and_exit_codes_of_own_children_are_kept() -> None:
    ran = first(ORPHANS)
    assert ran.stdout == "True 1 2 0\n", ran.stderr


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(0)", 0), ("sys.exit(62)", 62), ("os.kill(os.getpid(), 9)", 137)],
)
def test_the_container_ends_with_the_exit_code_of_the_gateway(end: str, code: int) -> None:
    line = f"import os, sys; from gateway.process.first_process import leave_first_process; leave_first_process(); {end}"
    assert first(line).returncode == code


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on_once(tmp_path: Path, sent: signal.Signals) -> None:
    code = """
import os, signal, sys, time
from gateway.process.first_process import leave_first_process
leave_first_process()
count = []
signal.signal(int(sys.argv[1]), lambda *_: count.append(1))
os.kill(1, int(sys.argv[1]))
end = time.monotonic() + 20
while not count and time.monotonic() < end: time.sleep(0.01)
time.sleep(0.2)
print(len(count))
"""
    assert first(code, str(int(sent))).stdout == "1\n"


def test_any_other_process_goes_on_as_it_is() -> None:
    code = "import os; before = os.getpid(); from gateway.process.first_process import leave_first_process; leave_first_process(); print(before == os.getpid())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "True\n"


@pytest.mark.slow
def test_a_gateway_as_process_1_serves_and_stops(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[models.m]\nengine = "scripted"\n[models.m.scripted]\nrules = []\n')
    script = f"""
import os, sys, time
pid = os.fork()
if pid == 0:
    time.sleep(8); os.kill(1, 15); time.sleep(60); os._exit(1)
from gateway.cli import main
sys.exit(main(["serve", "--config", {str(config)!r}, "--port", "0"]))
"""
    ran = first(script)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
