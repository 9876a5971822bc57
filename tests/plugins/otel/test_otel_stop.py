"""A stop is a stop, whatever the collector of traces does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="litegate-otel is not installed"
)

pytestmark = pytest.mark.slow
GRACE = 30.0
"""Longer than a slow machine takes to stop; without the mend, the process is ended five seconds later, with an error."""


@contextmanager
def collector(kind: str) -> Iterator[int]:
    """The port of a collector that refuses connections, or accepts them and is silent."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if kind == "silent":
            listening.listen(64)
        yield listening.getsockname()[1]


@pytest.mark.parametrize("kind", ["refuses", "silent"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_collector_that_is_away_makes_no_stop_an_error(
    tmp_path: Path, kind: str, workers: int
) -> None:
    (tmp_path / "gateway.toml").write_text(
        f'[server]\nport = 0\nworkers = {workers}\ngrace_period = {GRACE:g}\n[models.m]\nengine = "scripted"\n'
    )
    with collector(kind) as port:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", "gateway.toml"],
            cwd=tmp_path,
            env={
                **os.environ,
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                "OTEL_BSP_SCHEDULE_DELAY": "60000",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = ""
            for line in process.stdout:
                if "http://127.0.0.1:" in line:
                    url = (
                        "http://127.0.0.1:"
                        + line.partition("http://127.0.0.1:")[2].split("/")[0].split()[0]
                    )
                    break
            body = {"model": "m", "input": "Hi"}
            for _ in range(5):
                assert httpx.post(f"{url}/v1/responses", json=body, timeout=60).status_code == 200
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=GRACE)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, log
    assert "did not take the last ones" in log
