"""Answers to HTTP/1.0 clients, and errors in what follows a request that is being answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.canned_connections import Canned
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
WHOLE = b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


class App:
    """Reads requests, and answers each once it is told to."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.may_answer = asyncio.Event()
        self.begun = 0
        self._headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [*self._headers]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})


@pytest.mark.parametrize("header", [(b"x-a", b"b"), (b"content-length", b"6")])
@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
async def test_an_http_1_0_client_gets_a_body_that_ends_with_the_connection(
    header: tuple[bytes, bytes], expect: bytes
) -> None:
    app = App(header)
    canned = Canned(app)
    app.may_answer.set()
    canned.receive(b"GET / HTTP/1.0\r\n" + expect + b"\r\n")
    await wait_until_async(lambda: canned.transport.closing)
    head, _, body = canned.transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding" not in head
    assert b": ".join(header) in head
    assert head.endswith(b"\r\nconnection: close")
    assert body == b"onetwo"
    await canned.end()


@pytest.mark.parametrize(
    ("wrong", "answered"),
    [
        (b"GARBAGE\r\n\r\n", 2),
        (CHUNKED + b"no size\r\n", 2),
        (CHUNKED + b"2\r\n{}\r\nno size\r\n", 2),
        (b"GET nothing HTTP/1.1\r\nhost: a\r\n\r\n", 2),
        (GET * 100, 65),
    ],
    ids=["no request", "a body that is no chunk", "a later chunk", "no path", "too many"],
)
async def test_requests_before_what_is_wrong_are_answered_and_then_an_error(
    wrong: bytes, answered: int
) -> None:
    app = App()
    canned = Canned(app)
    canned.receive(GET + GET + wrong)
    await wait_until_async(lambda: app.begun)
    assert canned.transport.writes == []
    app.may_answer.set()
    await wait_until_async(lambda: canned.transport.closing)
    *answers, error = canned.transport.written.split(b"HTTP/1.1 ")[1:]
    assert [each[:3] for each in answers] == [b"200"] * answered
    assert {each.partition(b"\r\n\r\n")[2] for each in answers} == {WHOLE}
    assert error.startswith(b"400 ")
    await canned.end()
    assert app.begun == answered, "the refused request is not begun"


async def test_a_wrong_body_that_arrives_later_keeps_its_request_from_beginning() -> None:
    app = App()
    canned = Canned(app)
    canned.receive(GET + CHUNKED + b"2\r\n{}\r\n")
    await wait_until_async(lambda: app.begun)
    canned.receive(b"no size\r\n")
    assert canned.transport.writes == []
    app.may_answer.set()
    await wait_until_async(lambda: canned.transport.closing)
    answer, error = canned.transport.written.split(b"HTTP/1.1 ")[1:]
    assert answer.startswith(b"200 ")
    assert answer.endswith(b"\r\n\r\n" + WHOLE)
    assert error.startswith(b"400 ")
    await canned.end()
    assert app.begun == 1


async def test_a_wrong_body_ends_its_own_request() -> None:
    app = App()
    canned = Canned(app)
    canned.receive(CHUNKED + b"2\r\n{}\r\n")
    await wait_until_async(lambda: app.begun)
    canned.receive(b"no size\r\n")
    assert canned.transport.written.startswith(b"HTTP/1.1 400 ")
    assert canned.transport.closing
    await canned.end()
