"""Replicas of a gateway as processes, for tests that kill or pause one of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gateway_testing.free_ports import free_port
from gateway_testing.server import to_toml
from tests.waiting import wait_until


@contextmanager
def replica(
    config: Mapping[str, Any], folder: Path
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A gateway as a process of its own, which may be killed."""
    folder.mkdir()
    port = free_port()
    file = folder / "gateway.toml"
    file.write_text(to_toml({**config, "server": {**config["server"], "port": port}}))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
            stdout=log,
            stderr=log,
        )

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(ready, "the gateway's start", 120)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.kill()
        process.wait()
