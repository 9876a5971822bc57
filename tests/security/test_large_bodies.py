"""Bodies of very many values: counted before anything is made of them, and decoded beside other requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest
from gateway.wire.chat import decode_chat_request
from gateway.wire.field_errors import MAX_ITEMS, MAX_TOOLS
from gateway.wire.large_bodies import decode_body, threaded_if_large, threaded_if_many
from gateway.wire.request import decode_response_request

FUNCTION = {"name": "f", "parameters": {}}
TOOLS = [{"type": "function", **FUNCTION}] * (MAX_TOOLS + 1)
NESTED = [{"type": "function", "function": FUNCTION}] * (MAX_TOOLS + 1)
PARTS = [{"type": "text", "text": "a"}] * (MAX_ITEMS + 1)
UNTYPED = [{"role": "user", "content": PARTS}]
TYPED = [{"role": "user", "content": [{**PARTS[0], "type": "input_text"}] * (MAX_ITEMS + 1)}]
MESSAGE = {"role": "user", "content": "a"}
CASES: dict[str, tuple[Callable[[bytes], Any], dict[str, Any], str | None]] = {
    "parameters": (decode_response_request, {"input": "a", **{f"p{n}": 1 for n in range(MAX_ITEMS)}}, None),
    "tools": (decode_response_request, {"input": "a", "tools": TOOLS}, "tools"),
    "parts": (decode_response_request, {"input": TYPED}, "input[0].content"),
    "parts of another type": (decode_response_request, {"input": UNTYPED}, "input[0].content"),
    "tools of chat": (decode_chat_request, {"messages": [MESSAGE], "tools": NESTED}, "tools"),
    "functions": (decode_chat_request, {"messages": [MESSAGE], "functions": [FUNCTION] * (MAX_TOOLS + 1)}, "functions"),
    "parts of chat": (decode_chat_request, {"messages": UNTYPED}, "messages[0].content"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_too_many_values_are_counted(case: str) -> None:
    decode, body, param = CASES[case]
    with pytest.raises(InvalidRequest, match=r"too (long|many)") as refused:
        decode(json.dumps(body).encode())
    assert refused.value.param == param


def test_as_many_tools_as_there_may_be() -> None:
    body = {"input": "a", "tools": TOOLS[1:]}
    assert len(decode_response_request(json.dumps(body).encode()).tools or ()) == MAX_TOOLS


@pytest.mark.parametrize(
    ("body", "in_thread"),
    [(b"[1, 2]", False), (b"x" * 1_000_000, False), (b"," * 1000, False), (b"1," * 100_000, True)],
)
def test_many_values_are_decoded_beside_other_requests(body: bytes, *, in_thread: bool) -> None:
    def thread_of(given: bytes) -> int:
        assert given is body
        return threading.get_ident()

    assert (asyncio.run(decode_body(body, thread_of)) != threading.get_ident()) is in_thread


def test_errors_of_the_decoding_are_raised() -> None:
    with pytest.raises(InvalidRequest):
        asyncio.run(decode_body(b"1," * 100_000, decode_response_request))


def test_a_body_of_megabytes_is_decoded_beside_other_requests() -> None:
    body = b"x" * (3 << 20)
    assert asyncio.run(decode_body(body, lambda _: threading.get_ident())) != threading.get_ident()


@pytest.mark.parametrize(("number", "in_thread"), [(100, False), (20_000, True)])
def test_many_items_are_passed_over_beside_other_requests(number: int, *, in_thread: bool) -> None:
    def thread_of(given: list[int]) -> int:
        assert len(given) == number
        return threading.get_ident()

    passed = asyncio.run(threaded_if_many([1] * number, thread_of))
    assert (passed != threading.get_ident()) is in_thread


@pytest.mark.parametrize(("size", "in_thread"), [(65_536, False), (65_537, True)])
def test_work_on_a_large_body_is_done_beside_other_requests(size: int, *, in_thread: bool) -> None:
    worked = asyncio.run(threaded_if_large(size, threading.get_ident))
    assert (worked != threading.get_ident()) is in_thread
