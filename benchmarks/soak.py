"""Checks that memory stays bounded: `python -m benchmarks.soak [memory|redis] [--responses N]`.

A gateway on the null engine serves many more stored responses, in chains of a few turns, than its store may keep. The
memory of the process (and of Redis) must be the same in both halves of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import null_engine
from benchmarks.processes import wait_until_open
from benchmarks.run import ROOT, Server
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.process.logs import set_up_logging
from gateway.process.server import run
from gateway_testing.free_ports import free_port
from gateway_testing.redis_process import RedisProcess

KEPT = 2000
CLIENTS = 16
TURNS = 5
SAMPLES = 10
GROWTH = 1.1
"""Maximum ratio of memory in the second half to the first half."""


def serve(store: str, port: int, url: str) -> None:
    """Run a gateway whose store keeps `KEPT` responses."""
    model = ModelConfig(engine="null", renderer="chat_template", parser="plain")
    stores: dict[str, dict[str, Any]] = {"memory": {"max_responses": KEPT}}
    if store == "redis":
        stores = {"redis": {"max_responses": KEPT, "url": url}}
    set_up_logging("warning")
    config = Config(server=ServerConfig(port=port, store=store), models={"m": model}, stores=stores)
    run(config, load_plugins(config.plugins, extra=[null_engine]))


async def client(port: int, number: int) -> None:
    """Request `number` responses one after the other, in chains."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    previous = None
    for at in range(number):
        body = {"model": "m", "input": "x" * 500, "max_output_tokens": 16}
        if at % TURNS:
            body["previous_response_id"] = previous
        encoded = msgspec.json.encode(body)
        head = (
            "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(encoded)}\r\n\r\n"
        )
        writer.write(head.encode() + encoded)
        headers = await reader.readuntil(b"\r\n\r\n")
        length = int(headers.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = msgspec.json.decode(await reader.readexactly(length))
        if answer.get("error"):
            raise RuntimeError(answer["error"])
        previous = answer["id"]
    writer.close()


async def load(port: int, number: int) -> None:
    """Request `number` responses from all clients together."""
    await asyncio.gather(*(client(port, number // CLIENTS) for _ in range(CLIENTS)))


def soak(store: str, responses: int) -> bool:
    """Print memory during the run. Returns whether it stayed bounded."""
    port = free_port()
    seen: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisProcess(Path(folder))
        arguments = ["serve", store, str(port), redis.url]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak", *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        server = Server(store, port, process)
        try:
            wait_until_open(port, "gateway")
            begin = time.monotonic()
            for sample in range(SAMPLES):
                asyncio.run(load(port, responses // SAMPLES))
                seen.append((server.resident_kib(), redis.used_kib()))
                sys.stdout.write(
                    f"{store}: {responses * (sample + 1) // SAMPLES} responses, gateway {seen[-1][0]} KiB, "
                    f"Redis {seen[-1][1]} KiB, {time.monotonic() - begin:.0f} s\n"
                )
                sys.stdout.flush()
        finally:
            process.terminate()
            process.wait()
            redis.kill()
    half = SAMPLES // 2
    # Redis' records of entries that are evicted late may grow; a megabyte is tolerated.
    return all(
        max(each[half:]) <= max(each[:half]) * GROWTH + 1024 for each in zip(*seen, strict=True)
    )


def main() -> None:
    """Run the soak. The exit code is 1 if memory grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=["memory", "redis"])
    parser.add_argument("--responses", type=int, default=100_000)
    arguments = parser.parse_args()
    bounded = [soak(store, arguments.responses) for store in arguments.stores]
    sys.exit(0 if all(bounded) else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
