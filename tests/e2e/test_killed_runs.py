"""SIGKILL while runs of each kind are in progress: each has one end at the next start, and nothing is doubled.

Batches: tests/plugins/batches/test_batches_restart.py. Tools in progress, and what is run again: test_reruns.py. Many
streams and a second process: test_replicas.py.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gateway_testing.grammar import fold, parse_sse
from tests.e2e.conftest import LiveStream, running_requests
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CONFIG = """
[server]
port = {port}
store = "STORE"
lease_seconds = 10
grace_period = {grace}
{server}

TABLE

[models.scripted]
engine = "scripted"
path = "SCENARIO"
max_running = 100
"""
RULES = [
    {"when": "at length", "delay_ms": 100, "repeat": 4000, "pieces": [{"text": "slow words "}]},
    {"when": "briefly", "pieces": [{"text": "brief words"}]},
]
KINDS = ("plain", "stream", "background", "background stream", "websocket")


@pytest.fixture
def config(any_shared_store: Any, tmp_path: Path) -> str:
    scenario = tmp_path / "killed.json"
    scenario.write_text(json.dumps(RULES))
    return (
        CONFIG.replace("STORE", any_shared_store.name)
        .replace("TABLE", any_shared_store.table())
        .replace("SCENARIO", str(scenario))
    )


def test_every_kind_of_run_has_one_end(start_server: Any, config: str) -> None:
    server = start_server(config)
    responses = f"{server.url}/v1/responses"
    # The streams are read until the server is gone: a client that leaves ends a response.
    with server.http() as http, ExitStack() as open_connections:
        held = {kind: http.post("/v1/conversations", json={}).json()["id"] for kind in KINDS}
        bodies = {
            kind: {"model": "scripted", "input": "at length", "conversation": held[kind]}
            for kind in KINDS
        }
        plain = PlainRequest(responses, bodies["plain"])
        body = {**bodies["background"], "background": True}
        ids = {"background": http.post("/v1/responses", json=body).json()["id"]}
        live = {
            kind: LiveStream(responses, {**bodies[kind], "stream": True, "background": background})
            for kind, background in (("stream", False), ("background stream", True))
        }
        for kind, stream in live.items():
            created = b"".join(stream.got).partition(b"data: ")[2].partition(b"\n")[0]
            ids[kind] = json.loads(created)["response"]["id"]
        socket = open_connections.enter_context(
            connect(responses.replace("http", "ws", 1), open_timeout=60, ping_interval=None)
        )
        socket.send(json.dumps({"type": "response.create", **bodies["websocket"]}))
        ids["websocket"] = json.loads(socket.recv(60))["response"]["id"]

        def all_run() -> bool:
            assert running_requests(http) == len(KINDS), server.log
            return True

        wait_until(all_run, "all of them run")
        server.stop(signal.SIGKILL)
        assert isinstance(plain.outcome(), httpx.TransportError)

    with start_server(config).http() as http:
        ends = {
            kind: wait_until(lambda kind=kind: ended(http, ids[kind]), f"the end of the {kind}")
            for kind in ("background", "background stream")
        }
        for kind, end in ends.items():
            assert end is not None
            assert end["status"] == "failed"
            assert "owner_lost" in end["error"]["message"]
            path = f"/v1/responses/{ids[kind]}"
            http.post(f"{path}/cancel")
            assert http.get(path).json() == end
        log = http.get(f"/v1/responses/{ids['background stream']}", params={"stream": "true"})
        assert fold(parse_sse(log.content)) == ends["background stream"]
        for kind in ("stream", "websocket"):  # their clients have seen that they broke
            assert http.get(f"/v1/responses/{ids[kind]}").status_code == 404
        for kind in KINDS:
            path = f"/v1/conversations/{held[kind]}/items"
            assert http.get(path).json()["data"] == []
            again = http.post("/v1/responses", json={**bodies[kind], "input": "briefly"})
            assert again.json()["status"] == "completed"
            roles = [each["role"] for each in http.get(path).json()["data"]]
            assert sorted(roles) == ["assistant", "user"]


def ended(http: httpx.Client, response_id: str) -> dict[str, Any] | None:
    shown: dict[str, Any] = http.get(f"/v1/responses/{response_id}").json()
    return shown if shown["status"] not in ("queued", "in_progress") else None


class PlainRequest:
    """A request of which nothing is heard before its end, sent in a thread."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        self._outcome: httpx.Response | Exception | None = None
        self._thread = Thread(target=self._send, args=(url, body), daemon=True)
        self._thread.start()

    def _send(self, url: str, body: dict[str, Any]) -> None:
        try:
            self._outcome = httpx.post(url, json=body, timeout=300)
        except Exception as error:
            self._outcome = error

    def outcome(self) -> httpx.Response | Exception | None:
        """The answer, or the error that came instead, once there is one."""
        self._thread.join(60)
        return self._outcome
