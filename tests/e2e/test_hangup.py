"""SIGHUP, which a closed terminal sends, stops a server without a configuration file as SIGTERM does: no stream just breaks
off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.e2e.conftest import LiveStream, Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP"),
]


def begun(server: Server, **body: Any) -> LiveStream:
    """A stream whose text has begun."""
    return LiveStream(f"{server.url}/v1/responses", {**SLOW, **body})


def final(stream: LiveStream) -> dict[str, Any]:
    return fold(parse_sse(stream.whole()))


SLOW = {"model": "scripted", "input": "go slowly", "stream": True, "max_output_tokens": 30}


def processes_of(server: Any) -> list[int]:
    """The server's process and its children, as one group of a terminal would be."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@pytest.fixture(
    params=[
        pytest.param(1, id="one process"),
        pytest.param(2, id="two workers"),
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
    server = start(100)
    streams = [begun(server) for _ in range(4)]
    assert server.stop(signal.SIGHUP) == 0
    assert {final(stream)["status"] for stream in streams} == {"incomplete"}
    assert "Traceback" not in server.log


def test_streams_that_outlast_it_end_with_an_event(start: Any) -> None:
    server = start(0.2)
    streams = [begun(server, input="never stop", max_output_tokens=None) for _ in range(4)]
    assert server.stop(signal.SIGHUP) == 0
    for stream in streams:
        failed = final(stream)
        assert failed["status"] == "failed"
        assert "shut down" in failed["error"]["message"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds children in /proc")
def test_a_closed_terminal_signals_all_processes_and_may_do_so_twice(start: Any) -> None:
    server = start(100)
    stream = begun(server)
    for pid in processes_of(server) * 2:
        with suppress(ProcessLookupError):  # a worker without a stream has ended by now
            os.kill(pid, signal.SIGHUP)
    assert server.process.wait(120) == 0
    assert final(stream)["status"] == "incomplete"


def test_under_nohup_the_server_goes_on(start: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the server inherits it
    try:
        server = start(1)
    finally:
        signal.signal(signal.SIGHUP, before)
    server.process.send_signal(signal.SIGHUP)
    assert final(begun(server))["status"] == "incomplete"
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)
    assert server.stop() == 0
