"""Clients of streamed answers that take down what they are sent, and timers on a clock of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from litestar.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.base.shared_timers import SharedTimer, SharedTimers
from gateway.http.body_slices import SLICE
from gateway.http.connections.client_connection import ClientConnection
from gateway.http.stream_body import StreamBody

HEADERS = [(b"content-type", b"text/plain")]


class Client:
    """A client of another server than uvicorn; `send` may take its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.messages: list[Any] = []
        self._seconds = seconds
        self._answered = asyncio.Event()

    async def send(self, message: Message) -> None:
        await asyncio.sleep(self._seconds)
        self.messages.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._answered.set()

    async def receive(self) -> Any:
        await self._answered.wait()
        return {"type": "http.disconnect"}

    @property
    def statuses(self) -> list[int]:
        return [each["status"] for each in self.messages if each["type"] == "http.response.start"]

    @property
    def parts(self) -> list[bytes]:
        return [each["body"] for each in self.messages if each["type"] == "http.response.body"]


class Connection(asyncio.Transport):
    """Takes down what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def uvicorn_send(connection: Connection, flow: FlowControl | None = None) -> Any:
    logger = logging.getLogger("test")
    scope: Any = {"type": "http", "method": "POST", "headers": []}
    return RequestResponseCycle(
        scope, connection, flow or FlowControl(connection), logger, logger, False, [], asyncio.Event(),
        False, True, lambda: None,
    ).send  # fmt: skip


def body_on(connection: Connection) -> StreamBody:
    """A body whose chunks are written to `connection`."""
    send = uvicorn_send(connection)
    return StreamBody(send, send, lambda: HEADERS, ClientConnection(connection, lambda: None))


LARGE = bytes(range(256)) * (3 * SLICE // 256) + b"and a rest"


def unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


class Ticking(SharedTimers):
    """Timers that ring when a test lets time pass, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 1000.0
        self._calls: list[tuple[float, SharedTimer]] = []
        for module in ("gateway.http.stream_body", "gateway.http.connections.client_connection"):
            monkeypatch.setattr(f"{module}.monotonic", lambda: self.now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SharedTimer:
        together: set[SharedTimer] = set()
        timer = SharedTimer(callback, together)
        together.add(timer)
        self._calls.append((self.now + seconds, timer))
        return timer

    async def pass_until(self, end: float) -> None:
        while self._calls and min(at for at, _ in self._calls) <= end:
            self._calls.sort(key=lambda call: call[0])
            self.now, timer = self._calls.pop(0)
            if timer in timer._together:
                timer.callback()
            for _ in range(5):
                await asyncio.sleep(0)  # a sign that begins the body has a task of its own
        self.now = end
