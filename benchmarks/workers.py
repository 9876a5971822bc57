"""Measures engines in processes of their own, and several workers: `python -m benchmarks.workers [--rounds N]`.

The same null engine runs in the server process, in a process of its own, and in one that two workers share. CPU time is that of
all processes of the server together.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.load import Result
from benchmarks.processes import wait_until_open

ROOT = Path(__file__).parent.parent
CONFIG = """
[server]
port = {port}
workers = {workers}
store = "none"
access_log = false
log_level = "warning"
grace_period = 0.5
"""
MODEL = """
[models.{name}]
engine = "null"
process = "{process}"
renderer = "chat_template"
parser = "plain"
max_running = 100000
null = {{ interval_ms = {interval}, harmony = false }}
"""
KINDS = {
    "1 process": ("server", 1),
    "1 worker, engine apart": ("own", 1),
    "2 workers, engine apart": ("own", 2),
}
CASES = {
    "paced, 256 streams": ("plain-paced", 256, 200),
    "flat out, 64 streams": ("plain-flat", 64, 1000),
    "flat out, 1024 streams": ("plain-flat", 1024, 100),
}


def tree(process: int) -> list[int]:
    """A process and all below it."""
    below: dict[int, list[int]] = {}
    for entry in filter(lambda each: each.name.isdigit(), Path("/proc").iterdir()):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        below.setdefault(parent, []).append(int(entry.name))
    found = [process]
    for each in found:
        found += below.get(each, [])
    return found


def cpu_seconds(process: int) -> float:
    """CPU time of a process and all below it."""
    total = 0
    for each in tree(process):
        for thread in Path(f"/proc/{each}/task").glob("*/schedstat"):
            total += int(thread.read_text().split()[0])
    return total / 1e9


@contextmanager
def serving(process: str, workers: int) -> Iterator[tuple[int, int]]:
    """Serve with the null engine; the server's process id and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The engine's process finds plugins by their entry points.
        info = folder / "null_engine-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: null-engine\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[gateway]\nnull = benchmarks.null_engine\n")
        models = [
            MODEL.format(name=f"plain-{pace}", process=process, interval=interval)
            for pace, interval in (("paced", 20.0), ("flat", 0.0))
        ]
        config = folder / "gateway.toml"
        config.write_text(CONFIG.format(port=port, workers=workers) + "".join(models))
        server = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_open(port, "server")
            yield server.pid, port
        finally:
            server.terminate()
            server.wait()


def measure(kind: str, case: str) -> tuple[float, float, float]:
    """CPU microseconds per token, tokens per second, and the median of the first tokens in milliseconds."""
    model, streams, tokens = CASES[case]
    with serving(*KINDS[kind]) as (process, port):
        time.sleep(2)  # until all workers listen
        load = [sys.executable, "-m", "benchmarks.load", "responses", str(port), model]
        subprocess.run(
            [*load, "16", "50", "stream", "1"], cwd=ROOT, check=True, capture_output=True
        )
        before = cpu_seconds(process)
        out = subprocess.run(
            [*load, str(streams), str(tokens), "stream", "1"],
            cwd=ROOT, check=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
        result = msgspec.json.decode(out, type=Result)
        used = cpu_seconds(process) - before
    return used / result.tokens * 1e6, result.tokens / result.seconds, result.first_p50 * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(
        "| case | processes | CPU per token, µs | tokens/s | TTFT p50, ms |\n|---|---|---|---|---|"
    )
    for case in CASES:
        for kind in KINDS:
            seen = [measure(kind, case) for _ in range(rounds)]
            cpu, speed, first = (statistics.median(each) for each in zip(*seen, strict=True))
            print(f"| {case} | {kind} | {cpu:.1f} | {speed:,.0f} | {first:.0f} |", flush=True)


if __name__ == "__main__":
    main()
