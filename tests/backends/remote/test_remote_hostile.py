"""Answers of a server that is broken, or wants to harm: they cost bounded work and memory, and are clear failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from gateway_remote.connection import MAX_WITHOUT_BODY, ReplicaConnection
from gateway_remote.failures import ReplicaFailure, read_error
from gateway_remote.reading import reader_of
from gateway_remote.sse import MAX_EVENT, EventSplitter

DEEP = b'{"x":' * 100_000 + b"1" + b"}" * 100_000
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"


def test_a_large_event_in_small_pieces_is_read_once() -> None:
    """Each piece was joined to all before it: 16 MB in pieces of 1 kB took a minute."""
    splitter = EventSplitter()
    piece = b"x" * 1024
    for number in range(MAX_EVENT // len(piece)):
        assert splitter.feed(piece if number else b"data: " + piece[6:]) == []
    [event] = splitter.feed(b"\n\n")
    assert len(event) == MAX_EVENT - 6


@pytest.mark.parametrize("said", [DEEP, b'{"detail":' + b"[" * 100_000, b'{"error":"\xff"}'])
def test_what_cannot_be_read_is_an_error_of_decoding(said: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        reader_of(dict[str, str])(said)
    assert read_error(said, 502).message


class _Transport(asyncio.Transport):
    aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("begin", "go_on"),
    [
        (HEAD, lambda number: b"x-%d: %s\r\n" % (number, b"y" * 1000)),
        (HEAD + b"x: ", lambda number: b"y" * 1000),
        (HEAD + b"\r\n1;x=", lambda number: b"y" * 1000),
        (HEAD + b"\r\n0\r\n", lambda number: b"x-%d: %s\r\n" % (number, b"y" * 1000)),
    ],
    ids=["headers", "one header", "a chunk's extension", "trailers"],
)
async def test_a_head_without_an_end_is_a_failure(
    begin: bytes, go_on: Callable[[int], bytes]
) -> None:
    connection = ReplicaConnection()
    connection.connection_made(_Transport())
    connection.send(b"")
    connection.data_received(begin)
    for number in range(2 * MAX_WITHOUT_BODY // 1000):
        if not connection.usable:
            break
        connection.data_received(go_on(number))
    assert not connection.usable
    with pytest.raises(ReplicaFailure):
        connection.take()


@pytest.mark.anyio
async def test_a_long_stream_in_small_chunks_is_none() -> None:
    connection = ReplicaConnection()
    connection.connection_made(_Transport())
    connection.send(b"")
    connection.data_received(HEAD + b"\r\n")
    for _ in range(MAX_WITHOUT_BODY // 3 + 10):
        connection.data_received(b"1\r\n")
        connection.data_received(b"x\r\n")
        assert connection.take() == b"x"
    assert connection.usable
