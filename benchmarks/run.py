"""Measures the serving layer: `python -m benchmarks [--quick]`.

Every figure is CPU time of the server's process, from /proc, divided by what it served. Each gateway figure is shown
with those of the floors of the same run (see `benchmarks.serve`), because absolute times differ between machines. All
servers are measured in turn for several rounds, and the median is used, because other work on the machine varies.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.load import Result
from benchmarks.processes import wait_until_open
from gateway_testing.free_ports import free_port

ROOT = Path(__file__).parent.parent
FLOORS = ("floor", "litestar")


class Row(msgspec.Struct, kw_only=True):
    """One measurement. `cpu_us` is per token, for JSON cases per request."""

    server: str
    case: str
    cpu_us: float
    seconds: float
    first_p50_ms: float
    first_p99_ms: float
    kib_per_stream: float


class Server:
    """A running server process."""

    def __init__(self, kind: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.kind = kind
        self.port = port
        self.pid = process.pid

    def cpu_seconds(self) -> float:
        """CPU time of the process's threads so far, to the nanosecond (clock ticks are too coarse)."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def resident_kib(self) -> int:
        """Current resident memory, in KiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@contextmanager
def serving(kind: str, root: Path = ROOT) -> Iterator[Server]:
    """Run a server of `kind` (`floor`, `litestar` or `gateway`) of the checkout `root` on a free port; stop it at the end."""
    port = free_port()
    folders = [root, *root.glob("plugins/*/"), *root.glob("backends/*/")]
    path = os.pathsep.join(str(folder.resolve()) for folder in folders)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve", kind, str(port)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until_open(port, f"{kind} server")
        yield Server(kind, port, process)
    finally:
        process.terminate()
        process.wait()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One load, on the model `<parser>-<pace>` of the measured server."""

    name: str
    parser: str = "plain"
    pace: str = "paced"
    streams: int = 256
    tokens: int = 200
    api: str = "responses"
    stream: bool = True
    requests: int = 1
    """Number of requests per connection, one after the other."""
    floor: bool = False
    """Whether the floors run this case too."""


CASES = (
    Case(name="paced, 64 streams", streams=64, floor=True),
    Case(name="paced, 256 streams", floor=True),
    Case(name="paced, 1024 streams", streams=1024, floor=True),
    Case(name="flat out, 64 streams", pace="flat", streams=64, tokens=1000, floor=True),
    Case(name="flat out, 128 tokens", pace="flat", streams=64, tokens=128, floor=True),
    Case(name="flat out, 4096 tokens", pace="flat", streams=16, tokens=4096, floor=True),
    Case(name="paced, 256 streams, qwen3 parser", parser="qwen"),
    Case(name="paced, 256 streams, Harmony", parser="harmony"),
    Case(name="chat, paced, 256 streams", api="chat"),
    Case(name="chat, paced, 256 streams, qwen3 parser", api="chat", parser="qwen"),
    Case(name="chat, flat out, 64 streams", api="chat", pace="flat", streams=64, tokens=1000),
    Case(
        name="JSON, 64 tokens, per request",
        pace="flat", streams=16, tokens=64, stream=False, requests=50, floor=True,
    ),
    Case(
        name="chat, JSON, 64 tokens, per request",
        api="chat", pace="flat", streams=16, tokens=64, stream=False, requests=50,
    ),
)  # fmt: skip
QUICK = ("paced, 256 streams", "flat out, 64 streams", "JSON, 64 tokens, per request")


def measure(server: Server, case: Case) -> Row:
    """Run one load on `server` and measure its cost."""
    idle = server.resident_kib()
    before = server.cpu_seconds()
    command = [
        sys.executable, "-m", "benchmarks.load", case.api, str(server.port),
        f"{case.parser}-{case.pace}", str(case.streams), str(case.tokens),
        "stream" if case.stream else "plain", str(case.requests),
    ]  # fmt: skip
    load = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    most = idle
    while load.poll() is None:
        most = max(most, server.resident_kib())
        time.sleep(0.05)
    assert load.stdout is not None
    out = load.stdout.read()
    if load.returncode:
        raise RuntimeError(f"the load on {server.kind} failed")
    result = msgspec.json.decode(out, type=Result)
    cpu = server.cpu_seconds() - before
    return Row(
        server=server.kind,
        case=case.name,
        cpu_us=cpu / (result.tokens if case.stream else result.requests) * 1e6,
        seconds=result.seconds,
        first_p50_ms=result.first_p50 * 1000,
        first_p99_ms=result.first_p99 * 1000,
        kib_per_stream=(most - idle) / case.streams,
    )


def median(rows: Sequence[Row]) -> Row:
    """The reported row of several rounds of a case. Memory is from the first round, because later ones reuse it."""
    return msgspec.structs.replace(
        rows[0],
        cpu_us=statistics.median(row.cpu_us for row in rows),
        first_p50_ms=statistics.median(row.first_p50_ms for row in rows),
        first_p99_ms=statistics.median(row.first_p99_ms for row in rows),
    )


def measure_all(cases: Sequence[Case], rounds: int) -> list[Row]:
    """Measure every case `rounds` times, the servers in turn."""
    rows = []
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(kind)) for kind in (*FLOORS, "gateway")]
        for server in servers:
            measure(server, Case(name="warm-up", pace="flat", streams=16, tokens=100))
        for case in cases:
            asked = servers if case.floor else servers[-1:]
            seen = [[measure(server, case) for server in asked] for _ in range(rounds)]
            rows += [median(each) for each in zip(*seen, strict=True)]
    return rows


def table(rows: list[Row]) -> str:
    """The rows as Markdown, each with those of the floors of the same case."""
    lines = [
        "| case | floor, µs | Litestar, µs | gateway, µs | × floor | × Litestar | TTFT p50 / p99, ms: floor | Litestar "
        "| gateway | KiB per stream |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    seen = {(row.server, row.case): row for row in rows}
    for row in rows:
        if row.server != "gateway":
            continue
        floors = [seen.get((kind, row.case)) for kind in FLOORS]
        cells = [
            row.case,
            *(f"{each.cpu_us:.1f}" if each else "" for each in floors),
            f"{row.cpu_us:.1f}",
            *(f"{row.cpu_us / each.cpu_us:.2f}" if each else "" for each in floors),
            *(_first(each) if each else "" for each in floors),
            _first(row),
            f"{row.kib_per_stream:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _first(row: Row) -> str:
    return f"{row.first_p50_ms:.1f} / {row.first_p99_ms:.1f}"


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three cases, less than a minute")
    parser.add_argument(
        "--rounds", type=int, default=0, help="how often each is measured (3; 1 if quick)"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    arguments = parser.parse_args()
    cases = [
        case
        for case in CASES
        if arguments.only in case.name and (case.name in QUICK or not arguments.quick)
    ]
    rows = measure_all(cases, arguments.rounds or (1 if arguments.quick else 3))
    out = msgspec.json.encode(rows).decode() if arguments.json else table(rows)
    sys.stdout.write(out + "\n")
