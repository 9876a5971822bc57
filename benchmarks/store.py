"""Measures the cost of storing: `python -m benchmarks.store [--quick]`.

Streams are paced like an engine's and either not stored, stored at their end, or run in the background, where each
event is written to the store's log and read from it by the client. Long streams give the cost of a token, that is of an
event; streams of two tokens give the cost of a response. Figures are CPU time of the gateway's process, with all its threads, as
in `benchmarks.run`; that of the store's own server is listed separately.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import uvloop

from benchmarks import null_engine
from benchmarks.load import Client, http_request
from benchmarks.processes import wait_until_open
from benchmarks.run import ROOT, Server
from benchmarks.serve import INTERVAL_MS
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.process.logs import set_up_logging
from gateway.process.server import run
from gateway_testing.free_ports import free_port
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import RedisProcess

STREAMS = 256
SHORT = 2
"""Tokens of the streams that give the cost of a response."""
STORES = ["memory", "sqlite", "redis", "postgres"]
StoreProcess: TypeAlias = RedisProcess | PostgresProcess
CASES: dict[str, dict[str, Any]] = {
    "not stored": {"store": False},
    "stored": {"store": True},
    "background": {"background": True},
}


class Row(msgspec.Struct, kw_only=True):
    """One measurement."""

    store: str
    case: str
    us_per_token: float
    us_per_response: float
    server_us_per_token: float
    server_us_per_response: float


def serve(store: str, port: int, address: str) -> None:
    """Run a gateway on the null engine with a store, whose server or file is at `address`."""
    key = "path" if store == "sqlite" else "url"
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
        stores={store: {key: address}} if address else {},
    )
    run(config, load_plugins(config.plugins, extra=[null_engine]))


async def load(port: int, tokens: int, rounds: int, case: str) -> None:
    """Open all streams at once and read them to the end, `rounds` times."""
    loop = asyncio.get_running_loop()
    body = {
        "model": "paced", "stream": True, "input": "Hello there, how are you today?",
        "max_output_tokens": tokens, **CASES[case],
    }  # fmt: skip
    request = http_request(port, "/v1/responses", body)
    for _ in range(rounds):
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
def serving(store: str, address: str) -> Iterator[Server]:
    """Run a gateway with that store as a process; stop it at the end."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.store", "serve", store, str(port), address],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    server = Server(store, port, process)
    try:
        wait_until_open(port, "gateway")
        yield server
    finally:
        process.terminate()
        process.wait()


def measure(
    server: Server, process: StoreProcess | None, case: str, tokens: int, rounds: int
) -> tuple[float, float]:
    """Run one load. Returns the CPU time of the gateway and of the store's server, in µs."""
    before = server.cpu_seconds()
    before_store = process.cpu_seconds() if process is not None else 0.0
    arguments = ["load", str(server.port), str(tokens), str(rounds), case]
    subprocess.run([sys.executable, "-m", "benchmarks.store", *arguments], cwd=ROOT, check=True)
    after_store = process.cpu_seconds() if process is not None else 0.0
    return (server.cpu_seconds() - before) * 1e6, (after_store - before_store) * 1e6


def row(server: Server, process: StoreProcess | None, case: str, *, quick: bool) -> Row:
    """The costs of one case."""
    tokens, rounds = (100, 4) if quick else (400, 16)
    own, theirs = measure(server, process, case, SHORT, rounds)
    responses = STREAMS * rounds
    long_own, long_theirs = measure(server, process, case, tokens, 1)
    # What a stream costs beside its tokens is measured by the short ones.
    made = STREAMS * (tokens - SHORT)
    return Row(
        store=server.kind,
        case=case,
        us_per_token=(long_own - own / rounds) / made,
        us_per_response=own / responses,
        server_us_per_token=(long_theirs - theirs / rounds) / made,
        server_us_per_response=theirs / responses,
    )


def table(rows: list[Row]) -> str:
    """The rows as Markdown, each relative to the case that is not stored."""
    base = next(row for row in rows if row.case == "not stored")
    lines = [
        "| store | case | µs per response | × not stored | µs per token | × not stored | its server: µs per response | µs per token |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.store} | {row.case} | {row.us_per_response:.0f} | {row.us_per_response / base.us_per_response:.2f} "
        f"| {row.us_per_token:.1f} | {row.us_per_token / base.us_per_token:.2f} "
        f"| {row.server_us_per_response:.0f} | {row.server_us_per_token:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


@contextmanager
def store_process(store: str, folder: Path) -> Iterator[tuple[str, StoreProcess | None]]:
    """The address of a new store of that kind, and its server if it has one."""
    match store:
        case "redis":
            redis = RedisProcess(folder)
            yield redis.url, redis
            redis.kill()
        case "postgres":
            postgres = PostgresProcess()
            yield postgres.url, postgres
            postgres.close()
        case "sqlite":
            yield str(folder / "store.sqlite"), None
        case _:
            yield "", None


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=STORES, help="default: all")
    parser.add_argument("--quick", action="store_true", help="shorter streams")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for store in dict.fromkeys(("none", *arguments.stores)):
        with (
            tempfile.TemporaryDirectory() as folder,
            store_process(store, Path(folder)) as (address, process),
            serving(store, address) as server,
        ):
            measure(server, process, "not stored", 20, 1)
            cases = ["not stored"] if store == "none" else ["stored", "background"]
            rows += [row(server, process, case, quick=arguments.quick) for case in cases]
    out = msgspec.json.encode(rows).decode() if arguments.json else table(rows)
    sys.stdout.write(out + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name, at, place]:
            serve(name, int(at), place)
        case ["load", at, size, times, which]:
            uvloop.run(load(int(at), int(size), int(times), which))
        case _:
            main()
