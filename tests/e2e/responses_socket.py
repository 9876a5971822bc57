"""A client of Responses over a WebSocket, message by message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter
from websockets.sync.client import ClientConnection, connect

from gateway_testing.grammar import fold

EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)
ENDS = ("response.completed", "response.incomplete", "response.failed")


@contextmanager
def connected(server: Any, **options: Any) -> Iterator[ClientConnection]:
    url = server.url.replace("http://", "ws://") + "/v1/responses"
    with connect(url, max_size=None, open_timeout=60, **options) as socket:
        yield socket


def send(socket: ClientConnection, **fields: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "model": "scripted", **fields}))


def receive(socket: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(socket.recv(timeout=60))
    EVENT.validate_python(event)
    return event


def events(socket: ClientConnection) -> list[dict[str, Any]]:
    """One response's events."""
    got = [receive(socket)]
    while got[-1]["type"] not in (*ENDS, "error"):
        got.append(receive(socket))
    return got


def respond(socket: ClientConnection, **fields: Any) -> dict[str, Any]:
    send(socket, **fields)
    return fold(events(socket))
