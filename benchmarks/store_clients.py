"""What storing in SQLite adds to a request, by the number of clients: `python -m benchmarks.store_clients [CHECKOUT] [--pin]`.

Each client sends one JSON request of two tokens after the other, on a connection of its own. Rounds with `store: true` and with
`store: false` alternate on the same gateway, and with `CHECKOUT`, a folder with another version, on both versions in turn. The
figures are medians of CPU time of the gateway's process, with all its threads, for each request. See `benchmarks.compare` for `--pin`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import uvloop

from benchmarks import null_engine
from benchmarks.compare import pin, pin_server
from benchmarks.load import Client, http_request
from benchmarks.processes import wait_until_open
from benchmarks.run import ROOT, Server
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.process.logs import set_up_logging
from gateway.process.server import run
from gateway_testing.free_ports import free_port

CLIENTS = (1, 4, 32)
REQUESTS = 320
"""Number of requests in one round, of all clients together."""
Figures: TypeAlias = dict[tuple[Server, int, bool], list[float]]
"""By gateway, number of clients and whether responses are stored: the rounds, in microseconds for each request."""


def serve(port: int, path: str) -> None:
    """Run a gateway on the null engine, which answers without a pause, with the store in a file."""
    model = ModelConfig(
        engine="null",
        renderer="chat_template",
        parser="plain",
        max_running=100_000,
        options={"null": {"interval_ms": 0.0}},
    )
    set_up_logging("warning")
    server = ServerConfig(port=port, store="sqlite")
    config = Config(server=server, models={"flat": model}, stores={"sqlite": {"path": path}})
    run(config, load_plugins(config.plugins, extra=[null_engine]))


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    """Run a gateway of the checkout `root` as a process; stop it at the end."""
    port = free_port()
    folders = [root, *root.glob("plugins/*/"), *root.glob("backends/*/")]
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, "serve", str(port), f"{place}/store.sqlite"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_open(port, "gateway")
            yield Server(root.name, port, process)
        finally:
            process.terminate()
            process.wait()


async def measure(server: Server, clients: int, *, store: bool) -> float:
    """CPU time of one request, in microseconds."""
    loop = asyncio.get_running_loop()
    body = {"model": "flat", "input": "Hello there, how are you today?", "max_output_tokens": 2}
    sent = http_request(server.port, "/v1/responses", {**body, "store": store, "stream": False})
    each = REQUESTS // clients
    before = server.cpu_seconds()
    made = await asyncio.gather(
        *(
            loop.create_connection(
                lambda: Client(sent, stream=False, requests=each), "127.0.0.1", server.port
            )
            for _ in range(clients)
        )
    )
    await asyncio.gather(*(client.done for _, client in made))
    for transport, _ in made:
        transport.close()
    return (server.cpu_seconds() - before) / (clients * each) * 1e6


async def measure_all(servers: list[Server], rounds: int) -> Figures:
    """Measure the gateways in turn, after a round that warms them up."""
    figures: Figures = {}
    for number in range(rounds + 1):
        for clients in CLIENTS:
            for server in servers:
                for store in (False, True):
                    cost = await measure(server, clients, store=store)
                    if number:
                        figures.setdefault((server, clients, store), []).append(cost)
    return figures


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", help="folder of another version")
    parser.add_argument("--pin", action="store_true", help="a core and real-time priority")
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    roots = [ROOT] if arguments.checkout is None else [arguments.checkout.resolve(), ROOT]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(root)) for root in roots]
        if arguments.pin:
            for server in servers:
                pin_server(server)
            pin(0, (os.cpu_count() or 1) - 1)
        figures = uvloop.run(measure_all(servers, arguments.rounds))
    print("| version | clients | not stored, µs | stored | more |")
    print("|---" * 5 + "|")
    for clients in CLIENTS:
        for server in servers:
            without = statistics.median(figures[server, clients, False])
            stored = statistics.median(figures[server, clients, True])
            print(
                f"| {server.kind} | {clients} | {without:.0f} | {stored:.0f} | {stored - without:.0f} |"
            )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", at, file]:
            serve(int(at), file)
        case _:
            main()
