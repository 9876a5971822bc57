"""Measures the cost of storing: `python -m benchmarks.store [--quick]`.

Streams are paced like an engine's and either not stored, stored at their end, or run in the background, where each
event is written to the store's log and read from it by the client. Figures are CPU time of the gateway's process only,
as in `benchmarks.run`; Redis' own is listed separately.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks import null_engine
from benchmarks.load import Client, http_request
from benchmarks.run import ROOT, Server
from benchmarks.serve import INTERVAL_MS
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins import load_plugins
from gateway.server.logs import set_up_logging
from gateway.server.server import run
from gateway.testing.redis_process import RedisProcess, free_port

STREAMS = 256
CASES: dict[str, dict[str, Any]] = {
    "not stored": {"store": False},
    "stored": {"store": True},
    "background": {"background": True},
}


class Row(msgspec.Struct, kw_only=True):
    """One measurement."""

    store: str
    case: str
    cpu_us_per_token: float
    redis_us_per_token: float
    seconds: float


def serve(store: str, port: int, url: str) -> None:
    """Run a gateway on the null engine with a store."""
    model = ModelConfig(
        engine="null",
        renderer="chat_template",
        parser="plain",
        max_running=100_000,
        options={"null": {"interval_ms": INTERVAL_MS}},
    )
    set_up_logging("warning")
    config = Config(
        server=ServerConfig(port=port, store=store),
        models={"paced": model},
        stores={"redis": {"url": url}} if store == "redis" else {},
    )
    run(config, load_plugins(config.plugins, extra=[null_engine]))


async def load(port: int, tokens: int, case: str) -> None:
    """Open all streams at once and read them to the end."""
    loop = asyncio.get_running_loop()
    body = {
        "model": "paced", "stream": True, "input": "Hello there, how are you today?",
        "max_output_tokens": tokens, **CASES[case],
    }  # fmt: skip
    request = http_request(port, "/v1/responses", body)
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: Client(request, stream=True), "127.0.0.1", port)
            for _ in range(STREAMS)
        )
    )
    await asyncio.gather(*(client.done for _, client in made))
    for transport, _ in made:
        transport.close()


@contextmanager
def serving(store: str, url: str) -> Iterator[Server]:
    """Run a gateway with that store as a process; stop it at the end."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.store", "serve", store, str(port), url],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    server = Server(store, port, process)
    try:
        wait_until_open(port)
        yield server
    finally:
        process.terminate()
        process.wait()


def wait_until_open(port: int) -> None:
    """Return when the port accepts connections."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the gateway did not start")


def measure(server: Server, redis: RedisProcess, case: str, tokens: int) -> Row:
    """Run one load and measure its cost."""
    before, before_redis = server.cpu_seconds(), redis.cpu_seconds()
    begin = time.perf_counter()
    arguments = ["load", str(server.port), str(tokens), case]
    subprocess.run([sys.executable, "-m", "benchmarks.store", *arguments], cwd=ROOT, check=True)
    made = STREAMS * tokens
    return Row(
        store=server.kind,
        case=case,
        cpu_us_per_token=(server.cpu_seconds() - before) / made * 1e6,
        redis_us_per_token=(redis.cpu_seconds() - before_redis) / made * 1e6,
        seconds=time.perf_counter() - begin,
    )


def table(rows: list[Row]) -> str:
    """The rows as Markdown, each relative to the case that is not stored."""
    base = next(row.cpu_us_per_token for row in rows if row.case == "not stored")
    lines = [
        "| store | case | µs CPU per token | × not stored | Redis, µs per token |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.store} | {row.case} | {row.cpu_us_per_token:.1f} | {row.cpu_us_per_token / base:.2f} "
        f"| {row.redis_us_per_token:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter streams")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    arguments = parser.parse_args()
    tokens = 100 if arguments.quick else 400
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisProcess(Path(folder))
        try:
            for store in ("none", "memory", "redis"):
                with serving(store, redis.url) as server:
                    measure(server, redis, "not stored", 20)
                    cases = ["not stored"] if store == "none" else list(CASES)
                    rows += [measure(server, redis, case, tokens) for case in cases]
        finally:
            redis.kill()
    out = msgspec.json.encode(rows).decode() if arguments.json else table(rows)
    sys.stdout.write(out + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name, at, url]:
            serve(name, int(at), url)
        case ["load", at, size, which]:
            uvloop.run(load(int(at), int(size), which))
        case _:
            main()
