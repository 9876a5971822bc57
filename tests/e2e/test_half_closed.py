"""A client that shuts its sending side after its request counts as gone; a background response does not need it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

RULES = [
    {"when": "go on", "delay_ms": 20, "repeat": 100_000, "pieces": [{"text": "words "}]},
    {"when": "be late", "delay_ms": 600_000, "pieces": [{"text": "late"}]},
    {"when": "in short", "delay_ms": 20, "repeat": 3, "pieces": [{"text": "words "}]},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}}}
    with run_gateway(config, tmp_path_factory.mktemp("gateway")) as running:
        yield running


BODIES: dict[str, dict[str, Any]] = {
    "/responses": {"input": "SAID"},
    "/chat/completions": {"messages": [{"role": "user", "content": "SAID"}]},
    "/completions": {"prompt": "SAID"},
    "/messages": {"messages": [{"role": "user", "content": "SAID"}], "max_tokens": 9_999_999},
}


@pytest.mark.parametrize(
    ("said", "stream"),
    [
        ("be late", False),
        ("go on", True),
        pytest.param("go on", False, marks=pytest.mark.slow),
        pytest.param("be late", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("path", BODIES)
def test_a_half_closed_connection_ends_the_run(
    gateway: RunningGateway, path: str, stream: bool, said: str
) -> None:
    running = gateway.services.models["m"].admission
    with half_closing(gateway, path, said, stream=stream) as connection:
        wait_until(lambda: running.running == 1, "it runs")
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: running.running == 0, "the run has ended")
        # The server closes its side too: the client does not wait for ever.
        while connection.recv(65536):
            pass


def test_a_background_response_goes_on(gateway: RunningGateway) -> None:
    with half_closing(gateway, "/responses", "in short", stream=True, background=True) as open_one:
        received = b""
        while b"\n\n" not in received.partition(b"\r\n\r\n")[2]:
            received += open_one.recv(65536)
        open_one.shutdown(socket.SHUT_WR)
        first = next(line for line in received.splitlines() if line.startswith(b"data: {"))
    where = f"{gateway.base_url}/responses/{json.loads(first[6:])['response']['id']}"
    wait_until(lambda: httpx.get(where).json()["status"] == "completed", "the response is complete")


def half_closing(gateway: RunningGateway, path: str, said: str, **more: Any) -> socket.socket:
    """A connection on which `path` was asked."""
    place = urlsplit(gateway.base_url)
    body = json.loads(json.dumps({"model": "m", **BODIES[path], **more}).replace("SAID", said))
    content = json.dumps(body).encode()
    head = (
        f"POST {place.path}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    connection.sendall(head.encode() + content)
    return connection
