"""What a connection may make the server do below the level of requests: frames, chunks and headers without content."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from gateway.http.connections.http_protocol import MAX_HEADERS, MAX_SMALL_CHUNKS
from gateway.http.connections.websocket_protocol import FRAMES_AT_ONCE, FRAMES_PER_SECOND
from gateway_testing.server import RunningGateway, run_gateway
from tests.canned_connections import Canned, websocket
from tests.lines import lines_run

LONG = 60.0


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    factory: Any = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop", reason="uvloop is not installed").new_event_loop
    config = {"models": {"m": {"engine": "scripted"}}}
    with run_gateway(config, tmp_path_factory.mktemp("floods"), loop_factory=factory) as running:
        yield running


def opened(gateway: RunningGateway) -> ClientConnection:
    return connect(gateway.base_url.replace("http", "ws") + "/responses")


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


def send_raw(client: ClientConnection, data: bytes) -> None:
    with suppress(OSError):  # the connection is closed, and the library may have closed its socket
        client.socket.sendall(data)


def code_of_end(client: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            client.recv(LONG)
    assert closed.value.rcvd is not None, closed.value
    return closed.value.rcvd.code


MANY = FRAMES_AT_ONCE * 3
FLOODS = {
    "pings": frame(Opcode.PING) * MANY,
    "long pings": frame(Opcode.PING, b"x" * 125) * MANY,
    "pongs": frame(Opcode.PONG) * MANY,
    "empty messages": frame(Opcode.TEXT) * MANY,
    "empty messages of bytes": frame(Opcode.BINARY) * MANY,
    "messages of a letter": frame(Opcode.TEXT, b"x") * MANY,
    "empty fragments": frame(Opcode.TEXT, fin=False) + frame(Opcode.CONT, fin=False) * MANY,
    "pings in a message": frame(Opcode.TEXT, b"{", fin=False) + frame(Opcode.PING) * MANY,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_connection_that_sends_frames_without_content_is_closed(
    gateway: RunningGateway, flood: str
) -> None:
    with opened(gateway) as client:
        send_raw(client, FLOODS[flood])
        assert code_of_end(client) == 1008


def ask(client: ClientConnection, **more: Any) -> dict[str, Any]:
    client.send(json.dumps({"type": "response.create", "model": "m", "input": "hi", **more}))
    return end_of(client)


def end_of(client: ClientConnection) -> dict[str, Any]:
    while (event := json.loads(client.recv(LONG)))["type"] != "response.completed":
        assert event["type"] != "error", event
    found: dict[str, Any] = event
    return found


def test_what_clients_send_is_answered(gateway: RunningGateway) -> None:
    with opened(gateway) as client:
        for _ in range(50):
            assert client.ping().wait(LONG)
        ask(client)
        # A long message in fragments, with pings between them.
        text = json.dumps(
            {"type": "response.create", "model": "m", "input": "é" * 100_000}
        ).encode()
        parts = [text[at : at + 1000] for at in range(0, len(text), 1000)]
        sent = [frame(Opcode.TEXT, parts[0], fin=False)]
        for number, part in enumerate(parts[1:-1]):
            sent.append(frame(Opcode.CONT, part, fin=False))
            if number % 100 == 0:
                sent.append(frame(Opcode.PING, b"%d" % number))
        send_raw(client, b"".join([*sent, frame(Opcode.CONT, parts[-1])]))
        end_of(client)
        # Many messages at once: each is read when the one before it was taken.
        whole = json.dumps({"type": "response.create", "model": "m", "input": "hi"}).encode()
        send_raw(client, frame(Opcode.TEXT, whole) * 4)
        for _ in range(4):
            end_of(client)
        assert client.state is State.OPEN


async def _accept(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def accepted() -> tuple[Canned, Any]:
    canned = await websocket(_accept)
    for _ in range(10):
        await asyncio.sleep(0)
    return canned, canned.protocol


@pytest.mark.anyio
async def test_of_several_pings_the_latest_is_answered() -> None:
    canned, made = await accepted()
    canned.transport.writes.clear()
    made.data_received(b"".join(frame(Opcode.PING, b"%d" % number) for number in range(400)))
    answer = Frame(Opcode.PONG, b"399").serialize(mask=False)
    assert canned.transport.writes == [answer]
    # A client that does not read is answered once it does.
    made.pause_writing()
    for number in range(9):
        made.data_received(frame(Opcode.PING, b"%d" % number))
    assert canned.transport.writes == [answer]
    made.resume_writing()
    assert canned.transport.writes[1:] == [Frame(Opcode.PONG, b"8").serialize(mask=False)]
    await canned.end()


@pytest.mark.anyio
async def test_a_burst_is_not_read_to_its_end() -> None:
    for data in (frame(Opcode.PING), frame(Opcode.TEXT), frame(Opcode.TEXT, b"x" * 100)):
        canned, made = await accepted()
        with lines_run("websockets/frames.py", "websocket_protocol.py") as lines:
            made.data_received(data * 500_000)
            for _ in range(1000):
                await asyncio.sleep(0)
        assert canned.transport.closing
        assert made._data == b""
        assert lines.count < 400 * FRAMES_AT_ONCE
        await canned.end()


@pytest.mark.anyio
async def test_frames_are_counted_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    canned, made = await accepted()
    now = made.loop.time()
    monkeypatch.setattr(made, "loop", Clock(now))
    for _ in range(20):
        made.loop.now += 10
        made.data_received(frame(Opcode.PING) * min(FRAMES_AT_ONCE, FRAMES_PER_SECOND * 10))
    assert not canned.transport.closing
    made.loop.now += 1
    made.data_received(frame(Opcode.PING) * (FRAMES_PER_SECOND + 1))
    assert canned.transport.closing
    monkeypatch.undo()
    await canned.end()


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


def say(gateway: RunningGateway, data: bytes) -> bytes:
    host, port = gateway.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=LONG) as client:
        with suppress(OSError):  # it was refused before all of it came
            client.sendall(data)
        with suppress(ConnectionResetError):
            while more := client.recv(1 << 16):
                answer += more
    return answer


BODY = json.dumps({"model": "m", "input": "hi" * 5000}).encode()
HEAD = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"


def chunked(body: bytes, size: int, extension: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    shown = b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts)
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + shown + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_body_in_small_chunks_is_read(gateway: RunningGateway, size: int) -> None:
    assert say(gateway, chunked(BODY, size)).startswith(b"HTTP/1.1 200")
    assert say(gateway, chunked(BODY, size, b";a=b")).startswith(b"HTTP/1.1 200")


def test_a_body_in_too_many_small_chunks_is_refused(gateway: RunningGateway) -> None:
    body = b" " * (2 * MAX_SMALL_CHUNKS) + BODY
    answer = say(gateway, chunked(body, 1))
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Send larger chunks." in answer
    assert say(gateway, chunked(body, 1000)).startswith(b"HTTP/1.1 200")


def test_too_many_headers_are_refused(gateway: RunningGateway) -> None:
    for count, status in ((MAX_HEADERS - 10, b"200"), (MAX_HEADERS + 1, b"431")):
        head = (
            b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + b"a:\r\n" * count
        )
        assert say(gateway, head + b"\r\n").startswith(b"HTTP/1.1 " + status)
