"""Measures how long clients wait beside a batch: `python -m benchmarks.batch [--requests N] [--rounds N]`.

The scripted engine writes at a constant pace, so what differs is the wait for a place at the model. The batch has more concurrent lines
than the model has places, so it takes all that it is given.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

CONFIG = """
[server]
store = "none"
access_log = false
log_level = "warning"
grace_period = 0.5

[resources.files]
path = "{folder}"

[apis.batches]
concurrency = 16
priority = {priority}

[models.m]
engine = "scripted"
parser = "plain"
max_running = 8
scripted = {{ rules = [{{ when = "", pieces = [{{ text = "word " }}], repeat = 20, delay_ms = 20 }}] }}
"""
MODES = {"below clients (the default)": 100, "like clients (priority = 0)": 0}
LINES = 2000


@contextmanager
def gateway(priority: int) -> Iterator[httpx.Client]:
    """A running gateway, and a client of it."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        file = Path(folder) / "gateway.toml"
        file.write_text(CONFIG.format(folder=f"{folder}/files", priority=priority))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", str(port)]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                while True:
                    try:
                        if client.get("/ready").status_code == 200:
                            break
                    except httpx.TransportError:
                        time.sleep(0.05)
                yield client
        finally:
            process.terminate()
            process.wait()


def begin_batch(client: httpx.Client) -> str:
    """A batch whose lines run. Returns its id."""
    body = {"model": "m", "input": "hello"}
    lines = (
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": "/v1/responses", "body": body})
        for n in range(LINES)
    )
    files = {"file": ("in.jsonl", "\n".join(lines).encode())}
    file = client.post("/v1/files", data={"purpose": "batch"}, files=files).raise_for_status()
    asked = {
        "input_file_id": file.json()["id"],
        "endpoint": "/v1/responses",
        "completion_window": "24h",
    }
    batch: str = client.post("/v1/batches", json=asked).raise_for_status().json()["id"]
    while not counts(client, batch)["completed"]:
        time.sleep(0.05)
    return batch


def counts(client: httpx.Client, batch: str) -> dict[str, int]:
    found: dict[str, int] = client.get(f"/v1/batches/{batch}").json()["request_counts"]
    return found


def latencies(client: httpx.Client, number: int) -> list[float]:
    """Seconds that requests take, one after the other."""
    taken = []
    for _ in range(number):
        began = time.perf_counter()
        client.post("/v1/responses", json={"model": "m", "input": "hello"}).raise_for_status()
        taken.append(time.perf_counter() - began)
    return taken


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40, help="requests of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(
        "| lines run | idle p50 / p95, ms | beside a batch, ms | x idle, p50 / p95 | lines per s |"
    )
    print("|---|---|---|---|---|")
    for name, priority in MODES.items():
        idle: list[float] = []
        beside: list[float] = []
        pace = []
        with gateway(priority) as client:
            for _ in range(arguments.rounds):
                idle += latencies(client, arguments.requests)
                batch = begin_batch(client)
                before, began = counts(client, batch)["completed"], time.perf_counter()
                beside += latencies(client, arguments.requests)
                done = counts(client, batch)["completed"] - before
                pace.append(done / (time.perf_counter() - began))
                client.post(f"/v1/batches/{batch}/cancel").raise_for_status()
                while client.get(f"/v1/batches/{batch}").json()["status"] != "cancelled":
                    time.sleep(0.1)
        first, second = ([percentile(each, share) for share in (0.5, 0.95)] for each in (idle, beside))  # fmt: skip
        print(
            f"| {name} | {1000 * first[0]:.0f} / {1000 * first[1]:.0f} | {1000 * second[0]:.0f} / {1000 * second[1]:.0f} "
            f"| {second[0] / first[0]:.2f} / {second[1] / first[1]:.2f} | {statistics.median(pace):.0f} |"
        )


if __name__ == "__main__":
    main()
