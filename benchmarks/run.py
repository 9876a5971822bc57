"""Measures the serving layer: `python -m benchmarks [--quick]`.

Every figure is CPU time of the server's process, out of /proc, divided by what it served; each gateway figure stands next
to the floor's of the same run, because absolute times move from machine to machine.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.load import Result

TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parent.parent


class Row(msgspec.Struct, kw_only=True):
    """One measurement."""

    server: str
    case: str
    streams: int
    tokens_per_stream: int
    cpu_us_per_token: float
    seconds: float
    first_p50_ms: float
    first_p99_ms: float
    kib_per_stream: float | None = None


class Server:
    """A running server process."""

    def __init__(self, kind: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.kind = kind
        self.port = port
        self._process = process

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_kib(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@contextmanager
def serving(kind: str) -> Iterator[Server]:
    """A server of `kind` (`floor` or `gateway`) on a free port, stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve", kind, str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError(f"the {kind} server did not start")
        yield Server(kind, port, process)
    finally:
        process.terminate()
        process.wait()


def measure(
    server: Server,
    case: str,
    model: str,
    streams: int,
    tokens: int,
    *,
    stream: bool = True,
    api: str = "responses",
) -> Row:
    """One load on `server`, and what it cost."""
    idle = server.resident_kib()
    before = server.cpu_seconds()
    command = [
        sys.executable, "-m", "benchmarks.load", api, str(server.port), model, str(streams),
        str(tokens), "stream" if stream else "plain",
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
        case=case,
        streams=streams,
        tokens_per_stream=tokens,
        cpu_us_per_token=cpu / result.tokens * 1e6,
        seconds=result.seconds,
        first_p50_ms=result.first_p50 * 1000,
        first_p99_ms=result.first_p99 * 1000,
        kib_per_stream=(most - idle) / streams if streams >= 256 and stream else None,
    )


def measure_all(server: Server, quick: bool) -> list[Row]:
    """Every case, on one server."""
    paced = 100 if quick else 200
    measure(server, "warm-up", "plain-flat", 16, 100)
    rows = [
        measure(server, f"paced, {n} streams", "plain-paced", n, paced)
        for n in ((256,) if quick else (64, 256, 1024))
    ]
    rows.append(measure(server, "flat out, 64 streams", "plain-flat", 64, 1000))
    if not quick:
        rows.append(measure(server, "flat out, 128 tokens", "plain-flat", 64, 128))
        rows.append(measure(server, "flat out, 4096 tokens", "plain-flat", 16, 4096))
    if server.kind == "gateway":
        rows.append(measure(server, "paced, 256 streams, qwen3 parser", "qwen-paced", 256, paced))
        for case, model in (("chat", "plain-paced"), ("chat, qwen3 parser", "qwen-paced")):
            name = f"{case}, paced, 256 streams"
            rows.append(measure(server, name, model, 256, paced, api="chat"))
        rows.append(
            measure(server, "chat, flat out, 64 streams", "plain-flat", 64, 1000, api="chat")
        )
        rows.append(
            measure(server, "chat, JSON, 64 tokens", "plain-flat", 64, 64, stream=False, api="chat")
        )
        rows.append(measure(server, "plain JSON, 64 tokens", "plain-flat", 64, 64, stream=False))
    return rows


def table(rows: list[Row]) -> str:
    """The rows as Markdown, each next to the floor's of the same case."""
    floor = {row.case: row for row in rows if row.server == "floor"}
    lines = [
        "| server | case | µs CPU per token | × floor | TTFT p50 / p99, ms | KiB per stream |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        base = floor.get(row.case)
        ratio = f"{row.cpu_us_per_token / base.cpu_us_per_token:.2f}" if base else ""
        kib = "" if row.kib_per_stream is None else f"{row.kib_per_stream:.0f}"
        lines.append(
            f"| {row.server} | {row.case} | {row.cpu_us_per_token:.1f} | {ratio} "
            f"| {row.first_p50_ms:.1f} / {row.first_p99_ms:.1f} | {kib} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one case of each kind, half a minute")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for kind in ("floor", "gateway"):
        with serving(kind) as server:
            rows += measure_all(server, arguments.quick)
    out = msgspec.json.encode(rows).decode() if arguments.json else table(rows)
    sys.stdout.write(out + "\n")
