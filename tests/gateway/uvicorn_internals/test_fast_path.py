from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.uvicorn_internals.fast_path import (
    SingleWrite,
    arrived_body,
    chunk_writer,
    unbegun_cycle,
    write_answer,
    write_beginning,
)

HEAD: Any = {"type": "http.response.start", "status": 200, "headers": []}


class Connection(asyncio.Transport):
    """Notes what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def is_closing(self) -> bool:
        return "close" in self.done

    def close(self) -> None:
        self.done.append("close")


def cycle_on(connection: Connection, *, keep_alive: bool = True, method: str = "POST") -> Any:
    logger = logging.getLogger("test")
    scope: Any = {"type": "http", "method": method, "headers": []}
    default_headers = [(b"date", b"Mon, 23 Nov 2026 12:00:00 GMT")]
    return RequestResponseCycle(
        scope, connection, FlowControl(connection), logger, logger, False, default_headers, asyncio.Event(),
        False, keep_alive, lambda: connection.done.append("complete"),
    )  # fmt: skip


def body(data: bytes, *, more: bool) -> Any:
    return {"type": "http.response.body", "body": data, "more_body": more}


@pytest.mark.anyio
async def test_what_is_sent_together_leaves_in_one_write() -> None:
    connection = Connection()
    cycle = cycle_on(connection)
    with SingleWrite(cycle.send):
        await cycle.send(HEAD)
        await cycle.send(body(b"first", more=True))
        assert connection.done == []
    assert chunk_writer(cycle.send).write(b"second")
    await cycle.send(body(b"", more=False))
    together, second, end, complete = connection.done
    assert complete == "complete"
    assert together.startswith(b"HTTP/1.1 200 OK\r\n")  # type: ignore[arg-type]
    assert together.endswith(b"\r\n\r\n5\r\nfirst\r\n")  # type: ignore[arg-type]
    assert (second, end) == (b"6\r\nsecond\r\n", b"0\r\n\r\n")


@pytest.mark.anyio
async def test_a_connection_is_closed_after_what_was_sent() -> None:
    connection = Connection()
    cycle = cycle_on(connection, keep_alive=False)
    with SingleWrite(cycle.send):
        await cycle.send(HEAD)
        await cycle.send(body(b"all", more=False))
    assert [type(each) for each in connection.done] == [bytes, str, str]


@pytest.mark.anyio
async def test_what_was_sent_before_a_failure_leaves() -> None:
    connection = Connection()
    cycle = cycle_on(connection)
    with pytest.raises(RuntimeError), SingleWrite(cycle.send):
        await cycle.send(HEAD)
        await cycle.send(HEAD)
    assert len(connection.done) == 1
    assert cycle.transport is connection


@pytest.mark.anyio
async def test_another_server_is_left_alone() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    with SingleWrite(send):
        await send(HEAD)
        assert sent == [HEAD]


@pytest.mark.anyio
async def test_a_body_that_has_arrived_is_read_at_once_and_then_the_client_may_leave() -> None:
    cycle = cycle_on(Connection())
    assert arrived_body(cycle.receive) is None
    cycle.body += b"whole"
    assert arrived_body(cycle.receive) is None  # more may come
    cycle.more_body = False
    cycle.message_event.set()
    assert arrived_body(cycle.receive) == b"whole"
    leaving = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0)
    assert not leaving.done()
    cycle.disconnected = True
    cycle.message_event.set()
    assert (await leaving)["type"] == "http.disconnect"


@pytest.mark.anyio
async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    connection = Connection()
    cycle = cycle_on(connection)
    cycle.waiting_for_100_continue, cycle.more_body = True, False
    cycle.message_event.set()
    assert arrived_body(cycle.receive) is None
    await cycle.receive()
    assert connection.done == [b"HTTP/1.1 100 Continue\r\n\r\n"]


@pytest.mark.anyio
async def test_the_body_of_another_server_is_left_to_the_caller() -> None:
    async def receive() -> Any:
        raise AssertionError

    assert arrived_body(receive) is None


WHOLE = b'{"a": 1}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"8"),
    (b"x-request-id", b"req_1"),
    (b"x-tab", b"a\tb"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 201, 404])
async def test_a_whole_answer_has_the_bytes_that_uvicorn_sends(status: int) -> None:
    by_asgi, at_once = Connection(), Connection()
    cycle = cycle_on(by_asgi)
    await cycle.send({"type": "http.response.start", "status": status, "headers": HEADERS})
    await cycle.send(body(WHOLE, more=False))
    same = cycle_on(at_once)
    found: Any = unbegun_cycle(same.send)
    assert found is same
    write_answer(same, status, HEADERS, WHOLE)
    *parts, complete = by_asgi.done
    assert at_once.done == [b"".join(parts), complete]  # type: ignore[arg-type]
    for name in ("response_started", "response_complete", "chunked_encoding", "keep_alive"):
        assert getattr(same, name) == getattr(cycle, name)
    assert same.message_event.is_set()
    assert unbegun_cycle(same.send) is None
    with pytest.raises(RuntimeError):
        await same.send(body(b"", more=False))


@pytest.mark.anyio
async def test_the_beginning_of_a_stream_has_the_bytes_that_uvicorn_sends() -> None:
    by_asgi, at_once = Connection(), Connection()
    headers = [each for each in HEADERS if each[0] != b"content-length"]
    cycle, same = cycle_on(by_asgi), cycle_on(at_once)
    await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})
    await cycle.send(body(WHOLE * 9, more=True))
    write_beginning(same, 200, headers, WHOLE * 9)
    assert at_once.done == [b"".join(by_asgi.done)]  # type: ignore[arg-type]
    assert unbegun_cycle(same.send) is None
    for each in (cycle, same):
        assert chunk_writer(each.send).write(WHOLE)
        await each.send(body(b"", more=False))
        assert each.response_complete
    assert at_once.done[1:] == by_asgi.done[2:]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\r\nb: c", "a\0", "a\x7f", "\r\n\r\n"])
async def test_no_value_of_a_header_begins_another_line(name: str) -> None:
    for write in (write_answer, write_beginning, None):
        connection = Connection()
        cycle = cycle_on(connection)
        headers = [*HEADERS, (b"x-model", name.encode())]
        with pytest.raises(RuntimeError):
            if write is not None:
                write(cycle, 200, headers, WHOLE)
            else:
                await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})
        assert connection.done == []
        assert cycle.response_started


@pytest.mark.anyio
async def test_a_whole_answer_is_left_to_asgi_where_it_is_not_that_simple() -> None:
    assert unbegun_cycle(cycle_on(Connection(), keep_alive=False).send) is None
    assert unbegun_cycle(cycle_on(Connection(), method="HEAD").send) is None
    for name in ("response_started", "disconnected", "access_log", "chunked_encoding"):
        cycle = cycle_on(Connection())
        setattr(cycle, name, True)
        assert unbegun_cycle(cycle.send) is None
    cycle = cycle_on(Connection())
    cycle.flow.pause_writing()
    assert unbegun_cycle(cycle.send) is None

    async def send(message: Any) -> None:
        raise AssertionError

    assert unbegun_cycle(send) is None
