"""The check at start that uvicorn's protocols still carry the limits of connections."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import uvicorn
from litestar.types import Receive, Scope, Send

from gateway.errors import ConfigurationError
from gateway.uvicorn_internals.canned import (
    QUIET,
    REQUEST,
    Exchange,
    exchange_of,
    open_exchange,
    plain_stream,
    problem_of,
    require,
)
from gateway.uvicorn_internals.connections import ServingConfig

UVICORN: Final = ">=0.54,<0.55"
"""The versions of uvicorn that work, as in `pyproject.toml`."""

_SERVER_METHODS: Final = ("capture_signals", "handle_exit", "on_tick", "shutdown", "startup")
"""Methods of `uvicorn.Server` that the gateway's server extends."""
_TURNS: Final = 10
"""Turns of the event loop that the application may take for a message, or to end."""
_HANDSHAKE: Final = (
    b"GET /check HTTP/1.1\r\nhost: check\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Protocols(NamedTuple):
    """The classes that serve connections."""

    http: type[asyncio.Protocol]
    websocket: type[asyncio.Protocol]


def load_protocols() -> Protocols:
    """Return the limiting protocols. Raises `ConfigurationError` if uvicorn no longer has the classes that they extend."""
    try:
        from gateway.uvicorn_internals.http_protocol import LimitedHttpProtocol
        from gateway.uvicorn_internals.websocket_protocol import LimitedWebSocketProtocol
    except (ImportError, AttributeError) as error:
        raise _unusable(str(error)) from error
    return Protocols(LimitedHttpProtocol, LimitedWebSocketProtocol)


async def check_protocols(settings: ServingConfig) -> None:
    """Check that the protocols answer, and bound what a connection may send and how long it may take.

    Raises `ConfigurationError`: without these limits the server must not run.
    """
    try:
        for name in _SERVER_METHODS:
            require(hasattr(uvicorn.Server, name), f"uvicorn.Server has no {name}")
        for check in (
            _answers,
            _bounds_heads,
            _bounds_times,
            _bounds_connections,
            _bounds_websockets,
        ):
            await check(settings)
    except Exception as error:
        raise _unusable(problem_of(error)) from error


async def _answers(settings: ServingConfig) -> None:
    exchange = open_exchange(settings, _stream_unless_late)
    body = b"a" * 150_000
    for said in (REQUEST, _with_length(len(body)), body[:70_000], body[70_000:], REQUEST):
        exchange.protocol.data_received(said)
    await exchange.finish()
    answered = exchange.connection.written.count(b"HTTP/1.1 200 ")
    require(answered == 3, f"of 3 requests in a row {answered} are answered")
    exchange.late()
    require(not exchange.connection.closed, "a connection does not stay open after its answers")
    exchange.end()

    lost = open_exchange(settings, _wait_for_disconnect)
    lost.protocol.data_received(REQUEST * 2)
    await _turns()
    lost.end()
    await _turns()
    waiting = tuple(lost.state.tasks)
    for task in waiting:
        task.cancel()
    require(not waiting, "an application is not told that its client has gone")


async def _stream_unless_late(
    scope: Scope, receive: Receive, send: Send, exchange: Exchange
) -> None:
    """The canned response. The deadline of the next request must not count while this one is being answered."""
    exchange.late()
    require(not exchange.connection.closed, "a connection is closed while a request is answered")
    await plain_stream(scope, receive, send, exchange)


async def _wait_for_disconnect(
    scope: Scope, receive: Receive, send: Send, exchange: Exchange
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _bounds_heads(settings: ServingConfig) -> None:
    long = b"a" * 70_000
    for said, status in (
        (b"GARBAGE\r\n\r\n", 400),
        (REQUEST.replace(b"/check", b"/" + long), 431),
        (REQUEST.replace(b"check\r\n", long + b"\r\n"), 431),
        (REQUEST.replace(b"check\r\n", long), 431),
    ):
        for size in (len(said), 4096):
            exchange = open_exchange(settings, plain_stream)
            for at in range(0, len(said), size):
                exchange.protocol.data_received(said[at : at + size])
            _expect(exchange, status)
            exchange.end()

    pipeline = 100
    exchange = await exchange_of(settings, plain_stream, REQUEST * pipeline)
    answered = exchange.connection.written.count(b"HTTP/1.1 200 ")
    require(answered < pipeline, "pipelined requests are not bounded")
    _expect(exchange, 400)


async def _bounds_times(settings: ServingConfig) -> None:
    silent = open_exchange(settings, plain_stream)
    silent.late()
    require(silent.connection.closed, "a silent connection stays open")
    silent.end()

    slow = open_exchange(settings, plain_stream)
    slow.protocol.data_received(REQUEST[:10])
    slow.late()
    _expect(slow, 408)
    slow.end()

    unread = open_exchange(settings, plain_stream)
    unread.protocol.pause_writing()
    unread.connection.unsent = 100_000
    unread.late()
    require(unread.connection.aborted, "a client that does not read keeps its connection")
    unread.end()

    endless = open_exchange(settings, plain_stream)
    endless.protocol.data_received(_with_length(9))
    await endless.finish()
    require(not endless.connection.closed, "a connection does not stay open after an answer")
    endless.late()
    require(endless.connection.closed, "a body that does not end keeps its connection")
    endless.end()


async def _bounds_connections(settings: ServingConfig) -> None:
    exchange = open_exchange(settings, plain_stream, most=0)
    _expect(exchange, 503)
    exchange.end()


async def _bounds_websockets(settings: ServingConfig) -> None:
    refused = open_exchange(settings, _accept)
    refused.protocol.data_received(_HANDSHAKE.replace(b"AAAA", b""))
    _expect(refused, 400)
    refused.end()
    for deed in (
        _speak,
        _send_half_a_message,
        _send_too_many_fragments,
        _send_too_many_frames,
        _do_not_read,
    ):
        exchange = open_exchange(settings, _accept)
        try:
            exchange.protocol.data_received(_HANDSHAKE)
            websocket: Any = exchange.connection.protocol
            require(websocket is not exchange.protocol, "a WebSocket handshake is not taken")
            websocket.logger = websocket.conn.logger = QUIET
            websocket.app, websocket._limits = exchange.protocol.app, exchange.protocol._limits
            await _turns()
            opened = exchange.connection.written.startswith(b"HTTP/1.1 101 ")
            require(opened, "a WebSocket handshake is not answered")
            await deed(exchange, websocket)
        finally:
            exchange.end()
        await exchange.finish()


async def _speak(exchange: Exchange, websocket: Any) -> None:
    websocket.data_received(_frame(0x01))
    websocket.data_received(_frame(0x80))
    await _turns()
    websocket.data_received(_frame(0x81) * 99)
    await _turns()
    require(not websocket._rest, "WebSocket messages that come with others are not read")
    exchange.late()
    require(not exchange.connection.closed, "a WebSocket connection is closed between messages")


async def _send_half_a_message(exchange: Exchange, websocket: Any) -> None:
    websocket.data_received(_frame(0x01))
    exchange.late()
    require(
        exchange.connection.closed, "a WebSocket message that does not end keeps its connection"
    )


async def _send_too_many_fragments(exchange: Exchange, websocket: Any) -> None:
    from gateway.uvicorn_internals.websocket_protocol import MAX_FRAGMENTS

    websocket.data_received(_frame(0x01))
    websocket.frames.extend([b""] * (MAX_FRAGMENTS - len(websocket.frames)))
    websocket.data_received(_frame(0x00))
    require(exchange.connection.closed, "fragments of a WebSocket message are not bounded")


async def _send_too_many_frames(exchange: Exchange, websocket: Any) -> None:
    from gateway.uvicorn_internals.websocket_protocol import FRAMES_AT_ONCE

    writes = len(exchange.connection.writes)
    websocket.data_received(_frame(0x89) * 9)
    answers = len(exchange.connection.writes) - writes
    require(answers == 1, "of several pings of a WebSocket client not the latest is answered")
    websocket.data_received(_frame(0x8A) * (FRAMES_AT_ONCE + 1))
    require(exchange.connection.closed, "frames of a WebSocket are not bounded")


async def _do_not_read(exchange: Exchange, websocket: Any) -> None:
    websocket.pause_writing()
    writes = len(exchange.connection.writes)
    websocket.data_received(_frame(0x89))
    answered = len(exchange.connection.writes) > writes
    require(not answered, "pings of a WebSocket client that does not read are answered")
    exchange.connection.unsent = 100_000
    exchange.late()
    require(
        exchange.connection.aborted, "a WebSocket client that does not read keeps its connection"
    )


async def _turns() -> None:
    """Let the application run until it waits."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _with_length(length: int) -> bytes:
    """The head of a request with a body of `length` bytes."""
    return REQUEST.replace(b"\r\n\r\n", b"\r\ncontent-length: %d\r\n\r\n" % length)


def _frame(first: int) -> bytes:
    """A client's frame that begins with the byte `first`, with the payload `a` masked by zeros."""
    return bytes((first, 0x81, 0, 0, 0, 0)) + b"a"


async def _accept(scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
    await receive()
    await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def _expect(exchange: Exchange, status: int) -> None:
    """Require that the last answer is one of `raw_error`, and that the connection is closed."""
    last = exchange.connection.writes[-1] if exchange.connection.writes else b""
    require(
        last.startswith(b"HTTP/1.1 %d " % status)
        and b"application/json" in last
        and exchange.connection.closed,
        f"a request is not refused with {status}",
    )


def _unusable(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"uvicorn {uvicorn.__version__} cannot serve this gateway, whose limits of connections depend on it: {problem}. "
        f"Install uvicorn{UVICORN}."
    )
