"""A client of a WebSocket that leaves, or is slow to read, while a response is sent to it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import WebSocket
from uvicorn.protocols.utils import ClientDisconnected
from websockets.sync.client import connect

from gateway_testing.server import run_gateway
from tests.waiting import wait_until

Send = Callable[[Any], Awaitable[None]]
CONFIG = {
    "models": {
        "m": {
            "engine": "scripted",
            "scripted": {"rules": [{"when": "", "pieces": [{"text": "again "}], "repeat": 100_000}]},
        }
    }
}  # fmt: skip


@pytest.mark.parametrize(
    "refusal",
    [
        ClientDisconnected(),
        # uvicorn's, once a limit has made the server close the connection
        RuntimeError("Unexpected ASGI message 'websocket.send', after sending 'websocket.close'."),
    ],
    ids=["client", "server"],
)
def test_a_client_that_cannot_be_sent_to_has_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: Exception,
) -> None:
    """Sending fails before the application is told that the client has left. It was logged as an error of the server, and the
    response ended as failed."""
    refused: list[Any] = []

    def send_wrapper(_: WebSocket[Any, Any, Any], send: Send) -> Send:
        async def wrapped(message: Any) -> None:
            if "output_text.delta" in message.get("text", ""):
                refused.append(message)
                raise refusal
            await send(message)

        return wrapped

    monkeypatch.setattr(WebSocket, "send_wrapper", send_wrapper)
    with run_gateway(CONFIG, tmp_path) as gateway, caplog.at_level(logging.INFO, "gateway"):
        address = gateway.base_url.replace("http://", "ws://") + "/responses"
        with connect(address, open_timeout=60) as socket:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "x"}))
            created = json.loads(socket.recv(timeout=60))
            wait_until(lambda: refused)
        url = f"{gateway.base_url}/responses/{created['response']['id']}"

        def ended() -> Any:
            found = httpx.get(url, timeout=60)
            return found.status_code == 200 and found.json()["status"] != "in_progress"

        wait_until(ended)
        response = httpx.get(url, timeout=60).json()
    assert response["status"] == "cancelled", response["error"]
    assert len(refused) == 1
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_events_whose_sending_is_cancelled_come_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline ends the run, not the sending. Of the events of one step, those that waited were lost."""
    held: list[Any] = []

    def send_wrapper(_: WebSocket[Any, Any, Any], send: Send) -> Send:
        async def wrapped(message: Any) -> None:
            if not held and "response.created" in message.get("text", ""):
                held.append(message)
                await asyncio.get_running_loop().create_future()
            await send(message)

        return wrapped

    monkeypatch.setattr(WebSocket, "send_wrapper", send_wrapper)
    config = {**CONFIG, "server": {"request_timeout": 0.5}}
    with run_gateway(config, tmp_path) as gateway:
        address = gateway.base_url.replace("http://", "ws://") + "/responses"
        with connect(address, open_timeout=60) as socket:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "x"}))
            events = [json.loads(socket.recv(timeout=60))]
            while events[-1]["type"] != "response.failed":
                events.append(json.loads(socket.recv(timeout=60)))
    assert held
    assert events[0]["type"] == "response.created"
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
