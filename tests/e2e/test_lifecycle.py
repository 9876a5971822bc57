"""Starting and stopping: signals, grace, configuration that is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.e2e.conftest import LiveStream, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def begun(server: Server) -> LiveStream:
    """A stream that has begun, and that would go on for minutes."""
    body = {"model": "scripted", "input": "never stop", "stream": True}
    return LiveStream(f"{server.url}/v1/responses", body)


def test_a_stream_that_outlasts_the_grace_period_ends_with_an_event(start_server: Any) -> None:
    server = start_server(grace=0.3)
    stream = begun(server)
    assert server.stop() == 0
    final = fold(parse_sse(stream.whole()))
    assert final["status"] == "failed"
    assert "shut down" in final["error"]["message"]
    assert "Traceback" not in server.log


def test_a_stream_within_the_grace_period_is_finished(start_server: Any) -> None:
    server = start_server(grace=100)
    body = {"model": "scripted", "input": "go slowly", "stream": True, "max_output_tokens": 30}
    stream = LiveStream(f"{server.url}/v1/responses", body)
    assert server.stop(signal.SIGINT) == 0
    assert fold(parse_sse(stream.whole()))["status"] == "incomplete"


def test_a_second_interrupt_ends_at_once(start_server: Any) -> None:
    server = start_server(grace=1000)
    stream = begun(server)
    server.process.send_signal(signal.SIGINT)
    # Of two signals that come at once, the second may be lost.
    wait_until(lambda: not accepts(server), "the first signal is noticed")
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    server.process.wait(timeout=60)
    assert b"response.completed" not in stream.whole()


def accepts(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_the_server_says_where_it_is_and_what_to_send(start_server: Any) -> None:
    server = start_server()
    assert server.url in server.log
    assert "curl" in server.log
    assert "scripted" in server.log


def run_serve(folder: Path, config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = folder / "gateway.toml"
    file.write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "--config", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ('[models.a]\nengine = "scriptd"\n', "scripted"),
        ('[models.a]\nengin = "scripted"\n', "engine"),
        ('[server]\nprot = 1\n[models.a]\nengine = "scripted"\n', "port"),
        ('[server]\nport = "x"\n[models.a]\nengine = "scripted"\n', "server.port"),
        ('[server]\nstore = "memry"\n[models.a]\nengine = "scripted"\n', "memory"),
        ('[models.a]\nengine = "scripted"\nparser = "qwen33"\n', "qwen3"),
        ('[models.a]\nengine = "scripted"\npath = "/nowhere.json"\n', "/nowhere.json"),
        ('[models.a]\npath = "/nowhere.gguf"\n', "/nowhere.gguf"),
        ('[models.a]\nengine = "scripted"\n[tools.nothing]\n', "nothing"),
        ("[models.a\n", "line 1"),
        ('[models.a]\nengine = "scripted"\naliases = ["x"]\n[models.x]\nengine = "scripted"\n', "x"),
        ('[server]\nworkers = 2\nstore = "memory"\n[models.a]\nengine = "scripted"\n', "workers"),
    ],
)  # fmt: skip
def test_a_configuration_mistake_is_one_sentence(tmp_path: Path, config: str, told: str) -> None:
    done = run_serve(tmp_path, config)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_port_that_is_taken_is_told(tmp_path: Path, server: Any) -> None:
    port = server.url.rpartition(":")[2]
    done = run_serve(tmp_path, f'[server]\nport = {port}\n[models.a]\nengine = "scripted"\n')
    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr


WORKERS = """
[server]
port = {port}
workers = 2
store = "none"
[models.a]
engine = "scripted"
"""


def test_several_workers_serve_and_stop_together(start_server: Any) -> None:
    server = start_server(WORKERS)
    with server.http() as http:
        for _ in range(8):
            body = {"model": "a", "input": "hello"}
            assert http.post("/v1/responses", json=body).status_code == 200
        counted = 'gateway_responses_total{model="a",status="completed"} 8.0'
        wait_until(lambda: counted in http.get("/metrics").text, counted)
    wait_until(lambda: "Litegate listens" in server.log)  # the worker that says it may be the later
    assert server.stop() == 0
    assert server.log.count("Litegate listens") == 1
