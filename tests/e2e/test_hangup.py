"""SIGHUP, which a closed terminal sends, stops a server without a configuration file as SIGTERM does: no stream just breaks
off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.testing.grammar import fold, parse_sse

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")


class Stream:
    """A running stream; its bytes are read in a thread."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        self._begun = threading.Event()
        self._got: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(url, body), daemon=True)
        self._thread.start()
        assert self._begun.wait(60)

    def _read(self, url: str, body: dict[str, Any]) -> None:
        with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=60) as answer:
            for part in answer.iter_bytes():
                self._got.append(part)
                if b"output_text.delta" in part:
                    self._begun.set()

    def final(self) -> dict[str, Any]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return fold(parse_sse(b"".join(self._got)))


SLOW = {"model": "scripted", "input": "go slowly", "stream": True, "max_output_tokens": 30}


def processes_of(server: Any) -> list[int]:
    """The server's process and its children, as one group of a terminal would be."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@pytest.fixture(
    params=[
        pytest.param(1, id="one process"),
        pytest.param(2, id="two workers", marks=pytest.mark.slow),
    ]
)
def start(request: pytest.FixtureRequest, start_server: Any) -> Any:
    environment = {
        "GATEWAY_SERVER__WORKERS": str(request.param),
        "GATEWAY_SERVER__STORE": "none",
        "GATEWAY_MODELS__scripted__ENGINE": "scripted",
        "GATEWAY_MODELS__scripted__PATH": str(Path(__file__).parent / "scenario.json"),
    }
    return lambda grace: start_server(
        environment={**environment, "GATEWAY_SERVER__GRACE_PERIOD": str(grace)}
    )


def test_streams_may_finish_within_the_grace_period(start: Any) -> None:
    server = start(60)
    streams = [Stream(server.url, SLOW) for _ in range(4)]
    assert server.stop(signal.SIGHUP) == 0
    assert {stream.final()["status"] for stream in streams} == {"incomplete"}
    assert "Traceback" not in server.log


def test_streams_that_outlast_it_end_with_an_event(start: Any) -> None:
    server = start(0.2)
    streams = [Stream(server.url, {**SLOW, "max_output_tokens": None}) for _ in range(4)]
    assert server.stop(signal.SIGHUP) == 0
    for stream in streams:
        final = stream.final()
        assert final["status"] == "failed"
        assert "shut down" in final["error"]["message"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds children in /proc")
def test_a_closed_terminal_signals_all_processes_and_may_do_so_twice(start: Any) -> None:
    server = start(60)
    stream = Stream(server.url, SLOW)
    for pid in processes_of(server) * 2:
        os.kill(pid, signal.SIGHUP)
    assert server.process.wait(60) == 0
    assert stream.final()["status"] == "incomplete"


def test_under_nohup_the_server_goes_on(start: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the server inherits it
    try:
        server = start(1)
    finally:
        signal.signal(signal.SIGHUP, before)
    server.process.send_signal(signal.SIGHUP)
    assert Stream(server.url, SLOW).final()["status"] == "incomplete"
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)
    assert server.stop() == 0
